package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
)

// The SDK queues the notifications and requests of a server without a limit, so a server
// could fill the node's memory. Each message that is not a response to one of our requests
// therefore passes the gate of its connection before the SDK reads it.

// The limits of unsolicited messages: a burst, and a sustained rate. A server that exceeds
// them is ended.
const (
	burstMessages = 50_000
	burstBytes    = 32 << 20
	rateMessages  = 1_000 // in a second
	rateBytes     = 1 << 20
)

// maxRequests is the maximum number of unanswered requests of a server, and maxRequest the
// maximum size of a request whose parameters are read, in bytes. A request counts as
// requestWeight messages, because its answer costs as much.
const (
	maxRequests   = 64
	maxRequest    = 256 << 10
	requestWeight = 50
)

var (
	errFlood = fmt.Errorf("it sent unsolicited messages beyond the bound of %d and %d MiB at once and %d and %d MiB a second",
		burstMessages, burstBytes>>20, rateMessages, rateBytes>>20)
	errDeaf = fmt.Errorf("it sent requests and did not take the answers to %d of them", maxRequests)
	errLoud = fmt.Errorf("it wrote to its standard error beyond the bound of %d MiB at once and %d MiB a second", burstBytes>>20, rateBytes>>20)
)

// gate decides which messages of a server reach the SDK. Its methods may be called
// concurrently.
type gate struct {
	progress func(params json.RawMessage) // handles a notification before the next message is read
	kill     func()                       // ends the server; may be called several times
	unasked  allowance
	stderr   allowance
	requests chan struct{} // an element for each request of the server without an answer

	mu  sync.Mutex
	why error // the server was given up
}

func newGate(progress func(json.RawMessage)) *gate {
	return &gate{progress: progress, kill: func() {}, requests: make(chan struct{}, maxRequests)}
}

// fail gives the server up for the first reason, which it returns.
func (g *gate) fail(err error) error {
	g.mu.Lock()
	if g.why == nil {
		g.why = err
	}
	err = g.why
	g.mu.Unlock()
	g.kill()
	return err
}

// failure is why the server was given up; nil if it was not.
func (g *gate) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.why
}

// charge counts unsolicited messages and their n bytes.
func (g *gate) charge(messages, n int) error {
	if !g.unasked.take(messages, n) {
		return g.fail(errFlood)
	}
	return nil
}

// envelope is the part of a message that the gate inspects. Reading it is cheap: the SDK
// decodes a message much more slowly.
type envelope struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

// open returns the envelope of a message, and false for any other data.
func open(data []byte) (envelope, bool) {
	var m envelope
	err := json.Unmarshal(data, &m)
	return m, err == nil && m.Version == "2.0" && (m.Method != "" || m.call())
}

// call reports whether a message has an id.
func (m envelope) call() bool {
	return len(m.ID) > 0 && strings.IndexByte(`"-0123456789`, m.ID[0]) >= 0
}

// admit returns the form in which the SDK reads a message that is not a response to one of
// our requests, or nil to drop it. Of the notifications it handles only progress. Requests
// pass, at most maxRequests at once, and without parameters if this client lacks the
// capability.
func (g *gate) admit(m envelope, data []byte) ([]byte, error) {
	weight := 1
	if m.Method != "" && m.call() {
		weight = requestWeight
	}
	if err := g.charge(weight, len(data)); err != nil {
		return nil, err
	}
	switch {
	case m.Method == "": // it is not a response to a request
		return nil, nil
	case !m.call():
		if m.Method == "notifications/progress" && len(m.Params) <= maxTold+1<<10 {
			g.progress(m.Params)
		}
		return nil, nil
	case m.Method != "elicitation/create":
		method, err := json.Marshal(m.Method)
		if err != nil {
			return nil, err
		}
		data = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%s}`, m.ID, method)
	case len(data) > maxRequest:
		return nil, g.fail(fmt.Errorf("it asked with a message of %d bytes, at most %d are taken", len(data), maxRequest))
	}
	select {
	case g.requests <- struct{}{}:
		return data, nil
	default:
	}
	select {
	case g.requests <- struct{}{}:
		return data, nil
	case <-time.After(endGrace):
		return nil, g.fail(errDeaf)
	}
}

// answered ends a request of the server.
func (g *gate) answered() {
	select {
	case <-g.requests:
	default:
	}
}

// allowance is a budget of messages and bytes that grows with time up to the burst. The
// zero allowance is full.
type allowance struct {
	mu              sync.Mutex
	messages, bytes float64 // that are used
	at              time.Time
}

// take uses up messages and bytes and reports whether they were there.
func (a *allowance) take(messages, bytes int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	since := now.Sub(a.at).Seconds()
	a.at = now
	a.messages = max(0, a.messages-since*rateMessages) + float64(messages)
	a.bytes = max(0, a.bytes-since*rateBytes) + float64(bytes)
	return a.messages <= burstMessages && a.bytes <= burstBytes
}
