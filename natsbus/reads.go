package natsbus

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Reads come in two kinds. A direct read may be answered by any replica, which
// may lag behind what was acknowledged already; it is fast and reads in bulk.
// A leader read goes to the stream's leader and is never outdated; the end of
// a log is always asked there.

// stored is a message as a stream holds it.
type stored struct {
	Subject string
	Seq     uint64
	Time    time.Time
	Header  nats.Header
	Data    []byte
}

const (
	apiMsgGet    = "$JS.API.STREAM.MSG.GET."
	apiDirectGet = "$JS.API.DIRECT.GET."

	headerExpectLast = "Nats-Expected-Last-Subject-Sequence"
	headerSequence   = "Nats-Sequence"
	headerSubject    = "Nats-Subject"
	headerTime       = "Nats-Time-Stamp"
	headerPending    = "Nats-Num-Pending"
	headerStatus     = "Status"

	codeNoMessage      = 10037
	codeStreamNotFound = 10059

	// One page of a bulk read: few enough bytes to stay far below what a
	// client may have pending.
	pageMessages = 512
	pageBytes    = 4 << 20
)

// errNoMessage is returned when a stream holds no such message, or does not
// exist.
var errNoMessage = errors.New("natsbus: no message")

type getRequest struct {
	Seq           uint64 `json:"seq,omitempty"`
	LastBySubject string `json:"last_by_subj,omitempty"`
	NextBySubject string `json:"next_by_subj,omitempty"`
	Batch         int    `json:"batch,omitempty"`
	MaxBytes      int    `json:"max_bytes,omitempty"`
}

type getReply struct {
	Error *struct {
		Code        int    `json:"code"`
		ErrCode     int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
	Message *struct {
		Subject string    `json:"subject"`
		Seq     uint64    `json:"seq"`
		Header  string    `json:"hdrs"`
		Data    []byte    `json:"data"`
		Time    time.Time `json:"time"`
	} `json:"message"`
}

// leaderGet asks the stream's leader for one message. Where that is the only replica it
// answers a direct read as well, without the events that servers tell of each request
// to a leader.
func (c *Conn) leaderGet(ctx context.Context, stream string, req getRequest) (stored, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return stored{}, err
	}
	if c.o.Alone {
		subject, body := apiDirectGet+stream, body
		if req.LastBySubject != "" {
			subject, body = subject+"."+req.LastBySubject, nil
		}
		m, err := c.directOne(ctx, stream, subject, body)
		if err == nil || errors.Is(err, errNoMessage) {
			return m, err
		}
	} // a stream may take no direct reads
	m, err := c.request(ctx, &nats.Msg{Subject: apiMsgGet + stream, Data: body})
	if err != nil {
		return stored{}, fmt.Errorf("natsbus: read stream %s: %w", stream, err)
	}
	var reply getReply
	if err := json.Unmarshal(m.Data, &reply); err != nil {
		return stored{}, fmt.Errorf("natsbus: read stream %s: answer: %w", stream, err)
	}
	switch {
	case reply.Error != nil && (reply.Error.ErrCode == codeNoMessage || reply.Error.ErrCode == codeStreamNotFound):
		return stored{}, errNoMessage
	case reply.Error != nil:
		return stored{}, fmt.Errorf("natsbus: read stream %s: %w", stream, &jetstream.APIError{
			Code: reply.Error.Code, ErrorCode: jetstream.ErrorCode(reply.Error.ErrCode), Description: reply.Error.Description,
		})
	case reply.Message == nil:
		return stored{}, fmt.Errorf("natsbus: read stream %s: the answer holds no message", stream)
	}
	out := stored{Subject: reply.Message.Subject, Seq: reply.Message.Seq, Time: reply.Message.Time, Data: reply.Message.Data}
	if reply.Message.Header != "" {
		raw, err := base64.StdEncoding.DecodeString(reply.Message.Header)
		if err != nil {
			return stored{}, fmt.Errorf("natsbus: read stream %s: headers: %w", stream, err)
		}
		if out.Header, err = nats.DecodeHeadersMsg(raw); err != nil {
			return stored{}, fmt.Errorf("natsbus: read stream %s: headers: %w", stream, err)
		}
	}
	return out, nil
}

// leaderLast asks the stream's leader for the last message of a subject,
// patiently.
func (c *Conn) leaderLast(ctx context.Context, stream, subject string) (stored, error) {
	return c.leaderPatiently(ctx, stream, getRequest{LastBySubject: subject})
}

// leaderAt asks for the message with a sequence, patiently.
func (c *Conn) leaderAt(ctx context.Context, stream string, seq uint64) (stored, error) {
	return c.leaderPatiently(ctx, stream, getRequest{Seq: seq})
}

// leaderNext asks for the first message of the subjects that a filter matches with
// a sequence of at least from, patiently.
func (c *Conn) leaderNext(ctx context.Context, stream, filter string, from uint64) (stored, error) {
	return c.leaderPatiently(ctx, stream, getRequest{Seq: from, NextBySubject: filter})
}

func (c *Conn) leaderPatiently(ctx context.Context, stream string, req getRequest) (stored, error) {
	return retry(ctx, func(ctx context.Context) (stored, error) { return c.leaderGet(ctx, stream, req) })
}

// last returns the last message of a subject from any replica, and from the
// leader if that one does not have it, patiently. It may be outdated: it is
// for subjects whose message does not change.
func (c *Conn) last(ctx context.Context, stream, subject string) (stored, error) {
	return retry(ctx, func(ctx context.Context) (stored, error) {
		m, err := c.directOne(ctx, stream, apiDirectGet+stream+"."+subject, nil)
		if errors.Is(err, errNoMessage) || errors.Is(err, nats.ErrNoResponders) {
			m, err = c.leaderGet(ctx, stream, getRequest{LastBySubject: subject})
		}
		return m, err
	})
}

// at returns the message with a sequence, from any replica, and from the
// leader if that one does not have it, patiently.
func (c *Conn) at(ctx context.Context, stream string, seq uint64) (stored, error) {
	body, err := json.Marshal(getRequest{Seq: seq})
	if err != nil {
		return stored{}, err
	}
	return retry(ctx, func(ctx context.Context) (stored, error) {
		m, err := c.directOne(ctx, stream, apiDirectGet+stream, body)
		if errors.Is(err, errNoMessage) || errors.Is(err, nats.ErrNoResponders) {
			m, err = c.leaderGet(ctx, stream, getRequest{Seq: seq})
		}
		return m, err
	})
}

// directOne sends a direct read for one message.
func (c *Conn) directOne(ctx context.Context, stream, subject string, body []byte) (stored, error) {
	m, err := c.request(ctx, &nats.Msg{Subject: subject, Data: body})
	if err != nil {
		return stored{}, fmt.Errorf("natsbus: read stream %s: %w", stream, err)
	}
	if status := m.Header.Get(headerStatus); status != "" {
		return stored{}, statusError(stream, status, m)
	}
	return directStored(stream, m)
}

// directPage yields up to a page of a subject's messages with a sequence of at
// least from, in order, from any replica, while they arrive. Fewer than a page
// means that this replica has no more.
func (c *Conn) directPage(ctx context.Context, stream, subject string, from uint64) iter.Seq2[stored, error] {
	return c.directBatch(ctx, stream, getRequest{Seq: from, NextBySubject: subject, Batch: pageMessages, MaxBytes: pageBytes})
}

// upTo yields the messages that a filter matches with a sequence above after and of at
// most end, in order, patiently. The caller has end from the stream's leader. Pages come
// from any replica; where one has no more, the leader says what comes next. So a replica
// that lags leaves nothing out.
func (c *Conn) upTo(ctx context.Context, stream, filter string, after, end uint64) iter.Seq2[stored, error] {
	return func(yield func(stored, error) bool) {
		quiet, wait := time.Now().Add(retryBudget), newBackoff()
		for after < end {
			from := after
			var failed error
			for m, err := range c.directPage(ctx, stream, filter, from+1) {
				if err != nil {
					failed = err
					break
				}
				if m.Seq > end || !yield(m, nil) {
					return
				}
				after = m.Seq
			}
			if after > from {
				quiet, wait = time.Now().Add(retryBudget), newBackoff()
			}
			switch {
			case failed == nil && after > from:
			case failed == nil: // this replica has no more
				m, err := c.leaderNext(ctx, stream, filter, from+1)
				if errors.Is(err, errNoMessage) || err == nil && m.Seq > end {
					return // the filter matches no more, or it was purged meanwhile
				}
				if !yield(m, err) || err != nil {
					return
				}
				after = m.Seq
			case !isTransient(failed) || time.Now().After(quiet) || wait.sleep(ctx) != nil:
				yield(stored{}, failed)
				return
			}
		}
	}
}

// directBatch does that with a request of at most pageMessages.
func (c *Conn) directBatch(ctx context.Context, stream string, req getRequest) iter.Seq2[stored, error] {
	return func(yield func(stored, error) bool) {
		fail := func(err error) { yield(stored{}, fmt.Errorf("natsbus: read stream %s: %w", stream, err)) }
		body, err := json.Marshal(req)
		if err != nil {
			fail(err)
			return
		}
		link := c.link.Load().ctx
		// A page and its end fit, so that a slow reader loses nothing.
		answers := make(chan *nats.Msg, pageMessages+1)
		inbox := c.nc.NewInbox()
		sub, err := c.nc.ChanSubscribe(inbox, answers)
		if err != nil {
			fail(err)
			return
		}
		defer func() { _ = sub.Unsubscribe() }() // fails only when the connection has ended
		if err := c.nc.PublishRequest(apiDirectGet+stream, inbox, body); err != nil {
			fail(err)
			return
		}
		for n := 0; ; n++ {
			m, err := nextWithin(ctx, link, answers)
			if err != nil {
				fail(err)
				return
			}
			if status := m.Header.Get(headerStatus); status != "" {
				if status != "204" && (status != "404" || n > 0) {
					yield(stored{}, statusError(stream, status, m))
				}
				return
			}
			s, err := directStored(stream, m)
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}

// nextWithin waits for an answer at most requestTimeout, and not for one that
// the link will not bring any more.
func nextWithin(ctx, link context.Context, answers <-chan *nats.Msg) (*nats.Msg, error) {
	select {
	case m := <-answers:
		return m, nil
	default:
	}
	timer := time.NewTimer(requestTimeout)
	defer timer.Stop()
	select {
	case m := <-answers:
		return m, nil
	case <-timer.C:
		return nil, nats.ErrTimeout
	case <-link.Done():
		return nil, errCut
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func statusError(stream, status string, m *nats.Msg) error {
	switch status {
	case "404":
		return errNoMessage
	case "503":
		return fmt.Errorf("natsbus: read stream %s: %w", stream, nats.ErrNoResponders)
	}
	return fmt.Errorf("natsbus: read stream %s: status %s %s", stream, status, m.Header.Get("Description"))
}

func directStored(stream string, m *nats.Msg) (stored, error) {
	seq, err := strconv.ParseUint(m.Header.Get(headerSequence), 10, 64)
	if err != nil {
		return stored{}, fmt.Errorf("natsbus: read stream %s: sequence of an answer: %w", stream, err)
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get(headerTime))
	if err != nil {
		return stored{}, fmt.Errorf("natsbus: read stream %s: time of an answer: %w", stream, err)
	}
	return stored{Subject: m.Header.Get(headerSubject), Seq: seq, Time: at, Header: m.Header, Data: m.Data}, nil
}
