package conn

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The codes of servers that do not store a message.
const (
	codeWrongLast      = 10071 // the expected sequence is not the last one
	codeBusySubject    = 10164 // another publish to the subject is in flight, or was
	CodeStoreFailed    = 10077 // a limit of the stream
	CodeTooLarge       = 10054 // larger than the stream's messages may be
	CodeTooManyPending = 10167 // the server sheds load
	CodeNoResources    = 10002 // the server keeps a reserve on its disk
)

var (
	// ErrFull is returned when a stream has reached its limit, or its disk is full: writes
	// fail until an operator archives, raises the limit or makes room.
	ErrFull = errors.New("nats/conn: stream is full")
	// ErrExpectation is returned when the subject's last sequence differs, or for
	// replicated streams may differ, from the expected one.
	ErrExpectation = errors.New("nats/conn: not the expected last sequence")
)

// ErrDiskFull is the error of a server that keeps the reserve of its disk.
var ErrDiskFull = fmt.Errorf("%w: the servers reject writes: their disk is full, or the storage limit of this account is reached; free some space there", ErrFull)

// PubAck is a stream's answer to a message.
type PubAck struct {
	Error *struct {
		Code        int    `json:"code"`
		ErrCode     int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
	Stream    string `json:"stream"`
	Seq       uint64 `json:"seq"`
	Duplicate bool   `json:"duplicate"`
	// Count is the number of stored messages of a batch.
	Count int `json:"count"`
	// Type is the type of an intermediate answer of a batch, empty for an acknowledgement.
	Type string `json:"type"`
}

// PublishExpecting stores data as the next message of a subject, provided that the
// subject's last one has the sequence last (0: none), and returns its sequence. Every
// outcome other than a clean acknowledgement leaves open whether it is stored, except
// ErrFull and a message too large.
func (ms *Messages) PublishExpecting(ctx context.Context, subject string, last uint64, header nats.Header, data []byte) (uint64, error) {
	m := &nats.Msg{Subject: subject, Data: data, Header: header}
	if m.Header == nil {
		m.Header = make(nats.Header, 1)
	}
	m.Header[HeaderExpectLast] = []string{strconv.FormatUint(last, 10)}
	return ms.Publish(ctx, m)
}

// Publish stores a message and returns its sequence. As with
// PublishExpecting, an error leaves open whether it is stored.
func (ms *Messages) Publish(ctx context.Context, m *nats.Msg) (uint64, error) {
	reply, err := ms.conn.Request(ctx, m)
	if err != nil {
		return 0, err
	}
	if seq := storedAs(reply.Data); seq != 0 {
		return seq, nil
	}
	ack, err := decodeAck(m.Subject, reply.Data)
	return ack.Seq, err
}

// decodeAck reads a stream's answer. It returns an error unless the stream stored the
// message.
func decodeAck(subject string, answer []byte) (PubAck, error) {
	var ack PubAck
	if err := json.Unmarshal(answer, &ack); err != nil {
		return PubAck{}, fmt.Errorf("nats/conn: publish to %s: acknowledgement: %w", subject, err)
	}
	if e := ack.Error; e != nil {
		switch e.ErrCode {
		case codeWrongLast, codeBusySubject:
			return PubAck{}, ErrExpectation
		case CodeNoResources:
			return PubAck{}, ErrDiskFull
		case CodeStoreFailed:
			if strings.HasPrefix(e.Description, "maximum ") {
				return PubAck{}, fmt.Errorf("%w: %s; archive old data or raise the limit", ErrFull, e.Description)
			}
		}
		return PubAck{}, &jetstream.APIError{Code: e.Code, ErrorCode: jetstream.ErrorCode(e.ErrCode), Description: e.Description}
	}
	if ack.Duplicate || ack.Seq == 0 && ack.Type == "" {
		// This program sends no message ids, so another connection's message is meant.
		return PubAck{}, ErrExpectation
	}
	return ack, nil
}

const (
	headerBatchID     = "Nats-Batch-Id"
	headerBatchSeq    = "Nats-Batch-Sequence"
	headerBatchCommit = "Nats-Batch-Commit"
)

// PublishBatch stores messages of one stream, which has to allow that, in order: all of
// them or none. It returns the sequence of the last one. As with PublishExpecting, an error
// leaves open whether they are stored.
func (ms *Messages) PublishBatch(ctx context.Context, batch []*nats.Msg) (uint64, error) {
	id := rand.Text()
	for i, m := range batch {
		if m.Header == nil {
			m.Header = make(nats.Header, 3)
		}
		m.Header[headerBatchID], m.Header[headerBatchSeq] = []string{id}, []string{strconv.Itoa(i + 1)}
		if i == len(batch)-1 {
			m.Header[headerBatchCommit] = []string{"1"}
			return ms.Publish(ctx, m)
		}
		if err := ms.conn.NC.PublishMsg(m); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// PublishInOrder stores messages of one stream, which has to allow that, without waiting
// for each: messages after one that the server does not receive or store are not stored
// either. It returns the sequence of the last one. As with PublishExpecting, an error
// leaves open how many are stored. The protocol is that of nats-server's fast batches
// (ADR-50): the subject for answers carries a message's position in the batch.
func (ms *Messages) PublishInOrder(ctx context.Context, batch []*nats.Msg) (uint64, error) {
	inbox := ms.conn.NC.NewInbox()
	answers, err := ms.conn.NC.SubscribeSync(inbox + ".>")
	if err != nil {
		return 0, err
	}
	defer func() { _ = answers.Unsubscribe() }() // fails only when the connection has ended
	a := ms.conn.beginAttempt(ctx, batch[0].Subject)
	seq, err := ms.publishInOrder(a, batch, inbox, answers)
	return seq, ms.conn.causeOf(ctx, ms.conn.endAttempt(a, err))
}

// The operations of a message in such a batch.
const (
	batchStart  = ".0.$FI"
	batchAppend = ".1.$FI"
	batchCommit = ".2.$FI"
)

func (ms *Messages) publishInOrder(ctx context.Context, batch []*nats.Msg, inbox string, answers *nats.Subscription) (uint64, error) {
	most := inbox + "." + strconv.Itoa(len(batch)) + ".fail." // the server answers after as many, and at a gap
	for i, m := range batch {
		op := batchAppend
		switch {
		case i == len(batch)-1:
			op = batchCommit
		case i == 0:
			op = batchStart
		}
		m.Reply = most + strconv.Itoa(i+1) + op
		if err := ms.conn.NC.PublishMsg(m); err != nil {
			return 0, err
		}
	}
	for {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			return 0, err
		}
		switch ack, err := decodeAck(batch[0].Subject, m.Data); {
		case err != nil:
			return 0, err
		case ack.Type == "ack":
			// The server has received some, and accepts more.
		case ack.Type != "" || ack.Count != len(batch):
			return 0, fmt.Errorf("nats/conn: publish to %s: the server stored %d of %d messages: %s", batch[0].Subject, ack.Count, len(batch), m.Data)
		default:
			return ack.Seq, nil
		}
	}
}

// PublishAtLeastOnce publishes with retries. After a lost acknowledgement it publishes the
// message again, so the stream may hold duplicates.
func (ms *Messages) PublishAtLeastOnce(ctx context.Context, m *nats.Msg) error {
	_, err := Retry(ctx, func(ctx context.Context) (uint64, error) { return ms.Publish(ctx, m) })
	return err
}

// PutAfter stores data, with retries, as the next message of a subject whose last one has
// the sequence last, zero for none. It returns the next message: this one, or a faster
// writer's. Only their contents distinguish them; mine is true only if this one was
// acknowledged.
func (ms *Messages) PutAfter(ctx context.Context, stream, subject string, last uint64, data []byte) (m Message, mine bool, err error) {
	patient, cancel := context.WithTimeout(ctx, RetryBudget)
	defer cancel()
	for wait := NewBackoff(); ; {
		seq, err := ms.PublishExpecting(patient, subject, last, nil, data)
		if err == nil {
			return Message{Subject: subject, Seq: seq, Data: data}, true, nil
		}
		if errors.Is(err, ErrFull) || errors.Is(err, jetstream.ErrStreamNotFound) {
			return Message{}, false, err
		}
		// Another message is stored, or the previous attempt was, or neither is known.
		now, readErr := ms.LeaderLast(patient, stream, subject)
		if readErr == nil && now.Seq != last {
			return now, false, nil
		}
		if waitErr := wait.Sleep(patient); waitErr != nil {
			return Message{}, false, errors.Join(err, readErr, waitErr)
		}
	}
}

// storedAs parses the sequence of a stored message from the servers' usual form
// {"stream":"S","seq":7}, without the time that decoding takes. It returns 0 for any other
// answer.
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
