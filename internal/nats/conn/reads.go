package conn

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Reads come in two kinds. Any replica may answer a direct read; it may lag behind
// acknowledged messages, is fast and reads in bulk. A leader read goes to the stream's
// leader and is never outdated; the end of a log is always read from the leader.

// Message is a message as a stream holds it.
type Message struct {
	Subject string
	Seq     uint64
	Time    time.Time
	Header  nats.Header
	Data    []byte
	// Behind is how many messages followed this one when a follower received it.
	Behind uint64
}

const (
	apiMsgGet    = "$JS.API.STREAM.MSG.GET."
	APIDirectGet = "$JS.API.DIRECT.GET."

	HeaderExpectLast = "Nats-Expected-Last-Subject-Sequence"
	headerSequence   = "Nats-Sequence"
	headerSubject    = "Nats-Subject"
	headerTime       = "Nats-Time-Stamp"
	HeaderPending    = "Nats-Num-Pending"
	headerStatus     = "Status"
	headerUpTo       = "Nats-UpTo-Sequence"

	codeNoMessage      = 10037
	CodeStreamNotFound = 10059

	// PageMessages and PageBytes bound one page of a bulk read, far below a client's limit
	// of pending bytes.
	PageMessages = 512
	PageBytes    = 4 << 20
)

// ErrNoMessage is returned when a stream holds no such message, or does not
// exist.
var ErrNoMessage = errors.New("nats/conn: no message")

// GetRequest selects the messages to read.
type GetRequest struct {
	Seq            uint64   `json:"seq,omitempty"`
	LastBySubject  string   `json:"last_by_subj,omitempty"`
	LastBySubjects []string `json:"multi_last,omitempty"` // PageMessages at most
	NextBySubject  string   `json:"next_by_subj,omitempty"`
	Batch          int      `json:"batch,omitempty"`
	MaxBytes       int      `json:"max_bytes,omitempty"`
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

// Messages reads and publishes messages of streams over one connection. It is safe for
// concurrent use.
type Messages struct{ conn *Conn }

// StreamInfo returns the state of a stream, from its leader.
func (ms *Messages) StreamInfo(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	s, err := Call(ctx, ms.conn, APIStreamInfo+name, func(ctx context.Context) (jetstream.Stream, error) { return ms.conn.JS.Stream(ctx, name) })
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil
}

// StreamError adds the remedy to the error of a missing stream.
func StreamError(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("%w: run Provision first (rath cluster provision)", err)
	}
	if errors.Is(err, nats.ErrReconnectBufExceeded) {
		return unconnected{err}
	}
	return err
}

// LeaderGet reads one message from the stream's leader. A leader that is the only replica
// also answers a direct read, without the events that servers publish for each request to a
// leader.
func (ms *Messages) LeaderGet(ctx context.Context, stream string, req GetRequest) (Message, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return Message{}, err
	}
	if ms.conn.o.Alone {
		subject, body := APIDirectGet+stream, body
		if req.LastBySubject != "" {
			subject, body = subject+"."+req.LastBySubject, nil
		}
		m, err := ms.DirectOne(ctx, stream, subject, body)
		if err == nil || errors.Is(err, ErrNoMessage) {
			return m, err
		}
	} // a stream may take no direct reads
	m, err := ms.conn.Request(ctx, &nats.Msg{Subject: apiMsgGet + stream, Data: body})
	if err != nil {
		return Message{}, readError(stream, err)
	}
	var reply getReply
	if err := json.Unmarshal(m.Data, &reply); err != nil {
		return Message{}, fmt.Errorf("nats/conn: read stream %s: answer: %w", stream, err)
	}
	switch {
	case reply.Error != nil && (reply.Error.ErrCode == codeNoMessage || reply.Error.ErrCode == CodeStreamNotFound):
		return Message{}, ErrNoMessage
	case reply.Error != nil:
		return Message{}, fmt.Errorf("nats/conn: read stream %s: %w", stream, &jetstream.APIError{
			Code: reply.Error.Code, ErrorCode: jetstream.ErrorCode(reply.Error.ErrCode), Description: reply.Error.Description,
		})
	case reply.Message == nil:
		return Message{}, fmt.Errorf("nats/conn: read stream %s: the answer holds no message", stream)
	}
	out := Message{Subject: reply.Message.Subject, Seq: reply.Message.Seq, Time: reply.Message.Time, Data: reply.Message.Data}
	if reply.Message.Header != "" {
		raw, err := base64.StdEncoding.DecodeString(reply.Message.Header)
		if err != nil {
			return Message{}, fmt.Errorf("nats/conn: read stream %s: headers: %w", stream, err)
		}
		if out.Header, err = nats.DecodeHeadersMsg(raw); err != nil {
			return Message{}, fmt.Errorf("nats/conn: read stream %s: headers: %w", stream, err)
		}
	}
	return out, nil
}

// LeaderLast reads the last message of a subject from the stream's leader, with retries.
func (ms *Messages) LeaderLast(ctx context.Context, stream, subject string) (Message, error) {
	return ms.leaderPatiently(ctx, stream, GetRequest{LastBySubject: subject})
}

// LeaderAt reads the message with a sequence from the stream's leader, with retries.
func (ms *Messages) LeaderAt(ctx context.Context, stream string, seq uint64) (Message, error) {
	return ms.leaderPatiently(ctx, stream, GetRequest{Seq: seq})
}

// LeaderNext reads the first message of the subjects that a filter matches with a sequence
// of at least from, from the stream's leader, with retries.
func (ms *Messages) LeaderNext(ctx context.Context, stream, filter string, from uint64) (Message, error) {
	return ms.leaderPatiently(ctx, stream, GetRequest{Seq: from, NextBySubject: filter})
}

func (ms *Messages) leaderPatiently(ctx context.Context, stream string, req GetRequest) (Message, error) {
	return Retry(ctx, func(ctx context.Context) (Message, error) { return ms.LeaderGet(ctx, stream, req) })
}

// Last returns the last message of a subject from any replica, and from the leader if that
// replica does not have it, with retries. It may be outdated, so it is for subjects whose
// message does not change.
func (ms *Messages) Last(ctx context.Context, stream, subject string) (Message, error) {
	return Retry(ctx, func(ctx context.Context) (Message, error) {
		m, err := ms.DirectOne(ctx, stream, APIDirectGet+stream+"."+subject, nil)
		if errors.Is(err, ErrNoMessage) || errors.Is(err, nats.ErrNoResponders) {
			m, err = ms.LeaderGet(ctx, stream, GetRequest{LastBySubject: subject})
		}
		return m, err
	})
}

// At returns the message with a sequence, from any replica, and from the leader if that
// replica does not have it, with retries.
func (ms *Messages) At(ctx context.Context, stream string, seq uint64) (Message, error) {
	body, err := json.Marshal(GetRequest{Seq: seq})
	if err != nil {
		return Message{}, err
	}
	return Retry(ctx, func(ctx context.Context) (Message, error) {
		m, err := ms.DirectOne(ctx, stream, APIDirectGet+stream, body)
		if errors.Is(err, ErrNoMessage) || errors.Is(err, nats.ErrNoResponders) {
			m, err = ms.LeaderGet(ctx, stream, GetRequest{Seq: seq})
		}
		return m, err
	})
}

// DirectOne sends a direct read for one message.
func (ms *Messages) DirectOne(ctx context.Context, stream, subject string, body []byte) (Message, error) {
	m, err := ms.conn.Request(ctx, &nats.Msg{Subject: subject, Data: body})
	if err != nil {
		return Message{}, readError(stream, err)
	}
	if status := m.Header.Get(headerStatus); status != "" {
		return Message{}, statusError(stream, status, m)
	}
	return directStored(stream, m)
}

// Lasts returns the last messages of subjects, at most PageMessages, from any replica, with
// retries, by their subjects; it omits messages that this replica does not have. Like Last
// it is for subjects whose message does not change.
func (ms *Messages) Lasts(ctx context.Context, stream string, subjects []string) (map[string]Message, error) {
	found := make(map[string]Message, len(subjects))
	for left := subjects; len(left) > 0; {
		page, _, err := ms.LastsNow(ctx, stream, left)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		maps.Copy(found, page) // which may end before all of them
		left = slices.DeleteFunc(slices.Clone(left), func(s string) bool { _, ok := found[s]; return ok })
	}
	return found, nil
}

// LastsNow returns the last messages of subjects, at most PageMessages, from any replica,
// by their subjects, and the sequence up to which this replica has the stream, zero if it
// has none of them. It may omit some.
func (ms *Messages) LastsNow(ctx context.Context, stream string, subjects []string) (found map[string]Message, upTo uint64, err error) {
	_, err = Retry(ctx, func(ctx context.Context) (struct{}, error) {
		var end nats.Header
		found = make(map[string]Message, len(subjects))
		for m, err := range ms.directBatch(ctx, stream, GetRequest{LastBySubjects: subjects, MaxBytes: PageBytes}, &end) {
			if err != nil {
				return struct{}{}, err
			}
			found[m.Subject] = m
		}
		upTo, _ = strconv.ParseUint(end.Get(headerUpTo), 10, 64)
		return struct{}{}, nil
	})
	return found, upTo, err
}

// DirectPage yields up to a page of a subject's messages with a sequence of at
// least from, in order, from any replica, while they arrive. Fewer than a page
// means that this replica has no more.
func (ms *Messages) DirectPage(ctx context.Context, stream, subject string, from uint64) iter.Seq2[Message, error] {
	return ms.DirectBatch(ctx, stream, GetRequest{Seq: from, NextBySubject: subject, Batch: PageMessages, MaxBytes: PageBytes})
}

// UpTo yields the messages that a filter matches with a sequence above after and of at most
// end, in order, with retries. The caller has end from the stream's leader. Pages come from
// any replica; if a replica has no more, the leader returns the next message. So a lagging
// replica omits none.
func (ms *Messages) UpTo(ctx context.Context, stream, filter string, after, end uint64) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		quiet, wait := time.Now().Add(RetryBudget), NewBackoff()
		for after < end {
			from := after
			var failed error
			for m, err := range ms.DirectPage(ctx, stream, filter, from+1) {
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
				quiet, wait = time.Now().Add(RetryBudget), NewBackoff()
			}
			switch {
			case failed == nil && after > from:
			case failed == nil: // this replica has no more
				m, err := ms.LeaderNext(ctx, stream, filter, from+1)
				if errors.Is(err, ErrNoMessage) || err == nil && m.Seq > end {
					return // the filter matches no more, or it was purged meanwhile
				}
				if !yield(m, err) || err != nil {
					return
				}
				after = m.Seq
			case !IsTransient(failed) || time.Now().After(quiet) || wait.Sleep(ctx) != nil:
				yield(Message{}, failed)
				return
			}
		}
	}
}

// DirectBatch does that with a request of any batch.
func (ms *Messages) DirectBatch(ctx context.Context, stream string, req GetRequest) iter.Seq2[Message, error] {
	return ms.directBatch(ctx, stream, req, new(nats.Header))
}

// directBatch is DirectBatch that keeps the header of the replica's last message.
func (ms *Messages) directBatch(ctx context.Context, stream string, req GetRequest, end *nats.Header) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		fail := func(err error) { yield(Message{}, readError(stream, err)) }
		body, err := json.Marshal(req)
		if err != nil {
			fail(err)
			return
		}
		link := ms.conn.Linked()
		// A page and its end fit, so that a slow reader loses no message.
		answers := make(chan *nats.Msg, max(req.Batch, PageMessages)+1)
		inbox := ms.conn.NC.NewInbox()
		sub, err := ms.conn.NC.ChanSubscribe(inbox, answers)
		if err != nil {
			fail(err)
			return
		}
		defer func() { _ = sub.Unsubscribe() }() // fails only when the connection has ended
		if err := ms.conn.NC.PublishRequest(APIDirectGet+stream, inbox, body); err != nil {
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
				*end = m.Header
				if status != "204" && (status != "404" || n > 0) {
					yield(Message{}, statusError(stream, status, m))
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

// nextWithin waits for an answer for at most RequestTimeout, or until the link is lost.
func nextWithin(ctx, link context.Context, answers <-chan *nats.Msg) (*nats.Msg, error) {
	select {
	case m := <-answers:
		return m, nil
	default:
	}
	timer := time.NewTimer(RequestTimeout)
	defer timer.Stop()
	select {
	case m := <-answers:
		return m, nil
	case <-timer.C:
		return nil, nats.ErrTimeout
	case <-link.Done():
		return nil, ErrCut
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// readError is the error of a read that failed.
func readError(stream string, err error) error {
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("nats/conn: read stream %s: %w: the servers that hold it are starting or away; try again in a moment", stream, err)
	}
	return fmt.Errorf("nats/conn: read stream %s: %w", stream, err)
}

func statusError(stream, status string, m *nats.Msg) error {
	switch status {
	case "404":
		return ErrNoMessage
	case "503":
		return readError(stream, nats.ErrNoResponders)
	}
	return fmt.Errorf("nats/conn: read stream %s: status %s %s", stream, status, m.Header.Get("Description"))
}

func directStored(stream string, m *nats.Msg) (Message, error) {
	seq, err := strconv.ParseUint(m.Header.Get(headerSequence), 10, 64)
	if err != nil {
		return Message{}, fmt.Errorf("nats/conn: read stream %s: sequence of an answer: %w", stream, err)
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get(headerTime))
	if err != nil {
		return Message{}, fmt.Errorf("nats/conn: read stream %s: time of an answer: %w", stream, err)
	}
	return Message{Subject: m.Header.Get(headerSubject), Seq: seq, Time: at, Header: m.Header, Data: m.Data}, nil
}
