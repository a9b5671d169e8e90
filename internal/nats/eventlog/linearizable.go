package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/session"
)

// The leader of a stream that was cut off from the other servers, or was frozen, believes
// that it leads until it hears of its elected successor, for 10 s or more, and answers
// reads from its own data. None of its stale data gets into a log, because an append needs
// a majority. But a client that reads the newest version of a session would get an older
// version than others have read. So such a read goes to a leader that heard from a majority
// a moment ago, as leases do it in Raft (Ongaro, "Consensus: Bridging Theory and Practice",
// 6.4.1): no server is elected before the others have missed their leader for 4 s.

// heardWithin is how recently a leader must have heard from the servers that form its
// majority. Each of them answers it every second.
const heardWithin = 3 * time.Second

// LinearizableLast returns the newest version of a session: no older than any version
// returned or read anywhere before the call.
func (c *Logs) LinearizableLast(ctx context.Context, values *journal.Values, k session.Key) (session.Session, error) {
	held, err := c.held(ctx, k)
	if err != nil {
		return session.Session{}, err
	}
	return conn.Retry(ctx, func(ctx context.Context) (session.Session, error) {
		s, err := values.At(ctx, session.Ref{Key: k})
		if err != nil && !errors.Is(err, session.ErrNotFound) {
			return s, err
		}
		l, _ := s.Link()
		if l.Seq >= held {
			return s, err
		}
		switch skipped, errSkipped := c.skipped(ctx, k, held-l.Seq); {
		case errSkipped != nil:
			return s, errSkipped
		case l.Seq+skipped < held:
			return s, fmt.Errorf("%w: %s has %d messages, read were %d commits and %d that are none", conn.ErrBehind, k, held, l.Seq, skipped)
		}
		return s, err
	})
}

// skipped counts the messages of a session that are no commits of its log and that every
// reader skips, such as the tombstone before restored commits; it counts at most most. A
// server that lacks the end of the log has some of them, and no others.
func (c *Logs) skipped(ctx context.Context, k session.Key, most uint64) (n uint64, err error) {
	stream, subject, err := c.Place(k)
	if err != nil {
		return 0, err
	}
	last, err := c.messages.LeaderLast(ctx, stream, subject)
	if errors.Is(err, conn.ErrNoMessage) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("nats/eventlog: read %s: %w", k, err)
	}
	first, err := c.messages.LeaderNext(ctx, stream, subject, 1)
	if errors.Is(err, conn.ErrNoMessage) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("nats/eventlog: read %s: %w", k, err)
	}
	l, s := &eventLog{c}, c.foreign.of(subject, first.Seq)
	defer func() { c.foreign.keep(subject, s) }()
	if s.n >= most || s.token >= last.Seq {
		return min(s.n, most), nil
	}
	for m, err := range l.c.Messages(ctx, stream, subject, s.token, last) {
		if err != nil {
			return 0, fmt.Errorf("nats/eventlog: read %s: %w", k, err)
		}
		e, err := EntryOf(k, s.at, m)
		switch {
		case err == nil:
			s.at = e.At
		case !errors.Is(err, session.ErrForeign):
			return 0, fmt.Errorf("nats/eventlog: read %s: %w", k, err)
		default:
			s.n++
		}
		if s.token = m.Seq; s.n >= most {
			break
		}
	}
	return s.n, nil
}

// skip is the number of messages of a subject, up to one of them, that are no commits.
type skip struct {
	first uint64             // the sequence of the subject's first message, which a purge changes
	token uint64             // of the last one that was read
	at    commitlog.Position // of the log there
	n     uint64
}

// foreignCounts cache the counts, so that a log with messages that are no commits, such as
// a restored one, is read once and not for each read of its end. The zero value is ready to
// use. It is safe for concurrent use.
type foreignCounts struct {
	mu       sync.Mutex
	subjects map[string]skip
}

// skipsSize bounds the cached subjects.
const skipsSize = 4096

// of returns the count for a subject that begins with a message.
func (k *foreignCounts) of(subject string, first uint64) skip {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.subjects[subject]; s.first == first {
		return s
	}
	return skip{first: first, token: first - 1} // a replica may still have purged messages
}

// keep stores a count, unless another reader counted further.
func (k *foreignCounts) keep(subject string, s skip) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if have := k.subjects[subject]; have.first > s.first || have.first == s.first && have.token >= s.token {
		return
	}
	if k.subjects == nil || len(k.subjects) >= skipsSize {
		k.subjects = map[string]skip{}
	}
	k.subjects[subject] = s
}

// held returns the minimum number of messages of a session in its stream: all its commits
// that were acknowledged before the call, except archived ones, and the messages that
// readers skip.
func (c *Logs) held(ctx context.Context, k session.Key) (uint64, error) {
	stream, subject, err := c.Place(k)
	if err != nil {
		return 0, err
	}
	info, err := AskLeading(ctx, c.streams, stream, subject)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil
	}
	return info.Subjects[subject], err
}

// Leading is the state of a stream on its leader.
type Leading struct {
	LastSeq  uint64            `json:"last_seq"`
	Subjects map[string]uint64 `json:"subjects"` // how many messages each has
}

// AskLeading asks, with retries, the leader of a stream that has heard from a majority a
// moment ago: the answer includes everything acknowledged before. subjects filters the
// subjects to be counted, "" for none.
func AskLeading(ctx context.Context, c *streams.Streams, stream, subjects string) (Leading, error) {
	var body []byte
	if subjects != "" {
		var err error
		if body, err = json.Marshal(map[string]string{"subjects_filter": subjects}); err != nil {
			return Leading{}, err
		}
	}
	return conn.Retry(ctx, func(ctx context.Context) (Leading, error) {
		m, err := c.Conn.Request(ctx, &nats.Msg{Subject: conn.APIStreamInfo + stream, Data: body})
		if err != nil {
			return Leading{}, fmt.Errorf("nats/eventlog: look at stream %s: %w", stream, err)
		}
		var info struct {
			Error  *jetstream.APIError `json:"error"`
			Config struct {
				Replicas int `json:"num_replicas"`
			} `json:"config"`
			State   Leading                `json:"state"`
			Cluster *jetstream.ClusterInfo `json:"cluster"`
		}
		if err := json.Unmarshal(m.Data, &info); err != nil {
			return Leading{}, fmt.Errorf("nats/eventlog: look at stream %s: answer: %w", stream, err)
		}
		switch {
		case info.Error != nil && info.Error.ErrorCode == conn.CodeStreamNotFound:
			return Leading{}, fmt.Errorf("nats/eventlog: look at stream %s: %w", stream, jetstream.ErrStreamNotFound)
		case info.Error != nil:
			return Leading{}, fmt.Errorf("nats/eventlog: look at stream %s: %w", stream, info.Error)
		case info.Config.Replicas > 1 && !leads(info.Cluster, info.Config.Replicas):
			return Leading{}, fmt.Errorf("%w: %s", conn.ErrStaleLeader, stream)
		}
		return info.State, nil
	})
}

// leads reports whether a server with this view leads a group of so many servers: it is one
// of a majority that it has heard from.
func leads(group *jetstream.ClusterInfo, servers int) bool {
	if group == nil || group.Leader == "" {
		return false
	}
	heard := 1
	for _, r := range group.Replicas {
		// Active is zero if the leader has never heard from the server.
		if r.Active > 0 && r.Active <= heardWithin {
			heard++
		}
	}
	return 2*heard > max(servers, 1+len(group.Replicas))
}
