package natsbus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/protection"
)

const (
	codeWrongLast      = 10071 // the expected sequence is not the last one
	codeBusySubject    = 10164 // another publish to the subject is in flight, or was
	codeStoreFailed    = 10077 // a limit of the stream
	codeTooLarge       = 10054 // larger than the stream's messages may be
	codeTooManyPending = 10167 // the server sheds load
	codeNoResources    = 10002 // the server keeps what its disk has left
)

var (
	// ErrFull is returned when a stream has reached its limit, or its disk is full:
	// nothing is stored until an operator archives, raises the limit or makes room.
	ErrFull = errors.New("natsbus: stream is full")
	// errExpectation is returned when the subject's last sequence is, or for
	// replicated streams may be, another one than expected.
	errExpectation = errors.New("natsbus: not the expected last sequence")
)

type pubAck struct {
	Error *struct {
		Code        int    `json:"code"`
		ErrCode     int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
	Stream    string `json:"stream"`
	Seq       uint64 `json:"seq"`
	Duplicate bool   `json:"duplicate"`
}

// publishExpecting stores data as the next message of a subject, provided that
// the subject's last one has the sequence last (0: none), and returns its
// sequence. Every other outcome than a clean acknowledgement leaves open
// whether it is stored, but for ErrFull and a message too large.
func (c *Conn) publishExpecting(ctx context.Context, subject string, last uint64, header nats.Header, data []byte) (uint64, error) {
	m := &nats.Msg{Subject: subject, Data: data, Header: header}
	if m.Header == nil {
		m.Header = make(nats.Header, 1)
	}
	if protection.AppendCAS || !strings.HasPrefix(m.Subject, prefixEvent) {
		m.Header[headerExpectLast] = []string{strconv.FormatUint(last, 10)}
	}
	return c.publish(ctx, m)
}

// publish stores a message and returns its sequence. As with
// publishExpecting, an error leaves open whether it is stored.
func (c *Conn) publish(ctx context.Context, m *nats.Msg) (uint64, error) {
	reply, err := c.request(ctx, m)
	if err != nil {
		return 0, err
	}
	if seq := storedAs(reply.Data); seq != 0 {
		return seq, nil
	}
	var ack pubAck
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return 0, fmt.Errorf("natsbus: publish to %s: acknowledgement: %w", m.Subject, err)
	}
	if e := ack.Error; e != nil {
		switch e.ErrCode {
		case codeWrongLast, codeBusySubject:
			return 0, errExpectation
		case codeNoResources:
			return 0, errDiskFull
		case codeStoreFailed:
			if strings.HasPrefix(e.Description, "maximum ") {
				return 0, fmt.Errorf("%w: %s; archive old data or raise the limit", ErrFull, e.Description)
			}
		}
		return 0, &jetstream.APIError{Code: e.Code, ErrorCode: jetstream.ErrorCode(e.ErrCode), Description: e.Description}
	}
	if ack.Duplicate || ack.Seq == 0 {
		// Nothing here sends message ids, so somebody else's message is meant.
		return 0, errExpectation
	}
	return ack.Seq, nil
}

// store publishes patiently. Tries whose acknowledgement is lost store the message
// again: it is for what may be there twice.
func (c *Conn) store(ctx context.Context, m *nats.Msg) error {
	_, err := retry(ctx, func(ctx context.Context) (uint64, error) { return c.publish(ctx, m) })
	return err
}

// putAfter stores data, patiently, as the next message of a subject whose last one
// has the sequence last, zero for none. It returns the one that comes after that:
// this one, or another one that was faster. What tells them apart is what they say;
// mine is true only if this one was acknowledged.
func (c *Conn) putAfter(ctx context.Context, stream, subject string, last uint64, data []byte) (m stored, mine bool, err error) {
	patient, cancel := context.WithTimeout(ctx, retryBudget)
	defer cancel()
	for wait := newBackoff(); ; {
		seq, err := c.publishExpecting(patient, subject, last, nil, data)
		if err == nil {
			return stored{Subject: subject, Seq: seq, Data: data}, true, nil
		}
		if errors.Is(err, ErrFull) || errors.Is(err, jetstream.ErrStreamNotFound) {
			return stored{}, false, err
		}
		// There is another one, or the attempt before was stored, or nothing
		// is known.
		now, readErr := c.leaderLast(patient, stream, subject)
		if readErr == nil && now.Seq != last {
			return now, false, nil
		}
		if waitErr := wait.sleep(patient); waitErr != nil {
			return stored{}, false, errors.Join(err, readErr, waitErr)
		}
	}
}

// storedAs reads the sequence of a message that was stored from the form in which
// servers say so, {"stream":"S","seq":7}, without the time that decoding takes. It
// is 0 for whatever else an answer says or how it is written.
func storedAs(ack []byte) uint64 {
	rest, first := bytes.CutPrefix(ack, []byte(`{"stream":"`))
	stream, rest, second := bytes.Cut(rest, []byte(`","seq":`))
	digits, last := bytes.CutSuffix(rest, []byte("}"))
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	if !first || !second || !last || err != nil || bytes.ContainsAny(stream, `"\\`) {
		return 0
	}
	return seq
}
