package eventlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/session"
)

// Stored is a message as a stream holds it. Its data belong to the receiver.
type Stored struct {
	Stream  string
	Seq     uint64
	Subject string
	Time    time.Time
	Header  map[string][]string
	Data    []byte
}

// dumpQuiet is how long Dump waits for the next message of a stream that holds
// more.
const dumpQuiet = 30 * time.Second

// dumped are the streams that Dump reads after the event streams.
var dumped = []string{streams.StreamLineage, streams.StreamResult, streams.StreamDLQ, streams.StreamTasks, "KV_" + streams.BucketAlias}

// Dump reads the data that an auditor examines, as it is stored, in the order of each
// stream's sequence: the event streams of all generations up to their current ends, then
// lineage, results, refused and waiting tasks, aliases, and the names of the stored blobs,
// with the bytes of those that look like heads of files or lists of instructions. Before a
// commit come the blobs that hold data of its events, each as one message of stream BLOB
// with all of its bytes and no sequence. A message without a subject marks a stream that was
// read to its end; its sequence is that of the last message, even if that was removed.
//
// Dump ends with the first error, its own or that of fn. It skips a missing stream; after
// the others it returns a [*MissingError] with the names. The connection needs the rights
// of an operator; Options.Client is enough otherwise.
func (c *Logs) Dump(ctx context.Context, fn func(Stored) error) error {
	events, err := c.streams.EventStreams(ctx)
	if err != nil {
		return err
	}
	missing, err := c.missingEvents(ctx, events)
	if err != nil {
		return err
	}
	for _, stream := range events {
		if err := c.DumpStream(ctx, stream, true, fn); err != nil {
			return err
		}
	}
	for _, stream := range dumped {
		err := c.DumpStream(ctx, stream, false, fn)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			missing = append(missing, stream)
			continue
		}
		if err != nil {
			return err
		}
	}
	if err := c.dumpStored(ctx, fn); errors.Is(err, jetstream.ErrStreamNotFound) {
		missing = append(missing, streams.StreamBlob)
	} else if err != nil {
		return err
	}
	if len(missing) > 0 {
		return &MissingError{missing}
	}
	return nil
}

// dumpStored yields each stored blob, without its bytes unless it looks like the head of a
// session's files or, as a blob of one message, like the list of a model's instructions.
func (c *Logs) dumpStored(ctx context.Context, fn func(Stored) error) error {
	looks := func(data []byte) bool { return bytes.HasPrefix(data, []byte(`{"format":`)) }
	return c.DumpStream(ctx, streams.StreamBlob, false, func(m Stored) error {
		tenant, name, _ := strings.Cut(strings.TrimPrefix(m.Subject, streams.PrefixBlob), ".")
		d, err := blob.ParseDigest(name)
		if err != nil {
			return fn(Stored{Stream: m.Stream, Seq: m.Seq, Subject: m.Subject, Time: m.Time}) // the end
		}
		out := Stored{Stream: m.Stream, Seq: m.Seq, Subject: m.Subject, Time: m.Time}
		switch {
		case nats.Header(m.Header).Get(HeaderBlob) != BlobList:
			if looks(m.Data) || bytes.HasPrefix(m.Data, []byte(`{"instructions":`)) {
				out.Data = m.Data
			}
		case len(m.Data) >= len(d):
			b := &blobMessages{c, session.Tenant(tenant)}
			first, _, err := b.Load(ctx, blob.Digest(m.Data[:len(d)]))
			if err != nil && !errors.Is(err, blob.ErrNotFound) {
				return err
			}
			if !looks(first) {
				break
			}
			whole, err := c.readBlob(ctx, session.Tenant(tenant), d)
			if err != nil {
				return err
			}
			out.Data = whole
		}
		return fn(out)
	})
}

// readBlob returns the bytes of a blob, nil for an incomplete blob.
func (c *Logs) readBlob(ctx context.Context, t session.Tenant, d blob.Digest) ([]byte, error) {
	r, err := c.Blobs(t).Get(ctx, d)
	if errors.Is(err, blob.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); errors.Is(err, blob.ErrNotFound) || errors.Is(err, blob.ErrCorrupt) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return data, nil
}

// MissingError reports that Dump read everything except missing streams.
type MissingError struct {
	Streams []string // their names, event streams first
}

// Error names the streams.
func (e *MissingError) Error() string {
	return "nats/eventlog: missing streams: " + strings.Join(e.Streams, ", ")
}

// missingEvents returns the missing event streams of generations that have others.
func (c *Logs) missingEvents(ctx context.Context, events []string) ([]string, error) {
	var missing []string
	done := map[string]bool{}
	for _, name := range events {
		generation, _, _ := strings.Cut(strings.TrimPrefix(name, "EV_"), "_")
		if done[generation] {
			continue
		}
		done[generation] = true
		s, err := conn.Retry(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) { return c.messages.StreamInfo(ctx, name) })
		if err != nil {
			return nil, fmt.Errorf("nats/eventlog: dump stream %s: %w", name, conn.StreamError(err))
		}
		n, err := streams.PartitionsOf(&s.Config)
		if err != nil {
			return nil, err
		}
		for p := range n {
			if want := "EV_" + generation + "_" + strconv.FormatUint(uint64(p), 10); !slices.Contains(events, want) {
				missing = append(missing, want)
			}
		}
	}
	return missing, nil
}

// DumpStream yields a stream's messages up to its present end.
func (c *Logs) DumpStream(ctx context.Context, stream string, events bool, fn func(Stored) error) error {
	s, err := conn.Retry(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) { return c.messages.StreamInfo(ctx, stream) })
	if err != nil {
		return fmt.Errorf("nats/eventlog: dump stream %s: %w", stream, conn.StreamError(err))
	}
	state := s.State
	if s.Config.Retention == jetstream.WorkQueuePolicy {
		return c.dumpQueue(ctx, stream, state.LastSeq, fn)
	}
	if state.Msgs == 0 {
		return fn(Stored{Stream: stream, Seq: state.LastSeq})
	}
	in := make(chan conn.Message, conn.FollowAhead)
	err = conn.Following(ctx, func(ctx context.Context) error {
		return c.messages.Follow(ctx, stream, ">", state.FirstSeq, in)
	}, func(ctx context.Context) error {
		check := time.NewTimer(conn.HistoryCheck)
		defer check.Stop()
		heard := time.Now()
		for next := state.FirstSeq; next <= state.LastSeq; {
			select {
			case m := <-in:
				if next = m.Seq + 1; m.Seq > state.LastSeq {
					continue
				}
				if err := c.dumpMessage(ctx, stream, events, m, fn); err != nil {
					return err
				}
				heard = time.Now()
				check.Reset(conn.HistoryCheck)
			case <-check.C:
				more, err := c.messages.Holds(ctx, stream, next, state.LastSeq)
				if err != nil || !more {
					return err
				}
				if time.Since(heard) > dumpQuiet {
					return fmt.Errorf("nats/eventlog: dump stream %s: no message for %v after %d, and the leader has more of them", stream, dumpQuiet, next-1)
				}
				check.Reset(conn.HistoryCheck)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	// The read is stopped when the last message has arrived.
	if err != nil && (!errors.Is(err, context.Canceled) || ctx.Err() != nil) {
		return err
	}
	return fn(Stored{Stream: stream, Seq: state.LastSeq})
}

// dumpQueue reads a work queue message by message: it has no consumer but its
// own.
func (c *Logs) dumpQueue(ctx context.Context, stream string, last uint64, fn func(Stored) error) error {
	for next := uint64(1); next <= last; {
		m, err := c.messages.LeaderNext(ctx, stream, ">", next)
		if errors.Is(err, conn.ErrNoMessage) {
			break
		}
		if err != nil {
			return err
		}
		if err := c.dumpMessage(ctx, stream, false, m, fn); err != nil {
			return err
		}
		next = m.Seq + 1
	}
	return fn(Stored{Stream: stream, Seq: last})
}

func (c *Logs) dumpMessage(ctx context.Context, stream string, events bool, m conn.Message, fn func(Stored) error) error {
	if events {
		if err := c.dumpBlobs(ctx, m, fn); err != nil {
			return err
		}
	}
	return fn(Stored{Stream: stream, Seq: m.Seq, Subject: m.Subject, Time: m.Time, Header: m.Header, Data: m.Data})
}

// dumpBlobs yields the blobs that hold data of a commit's events. It omits a missing one:
// an auditor detects that.
func (c *Logs) dumpBlobs(ctx context.Context, m conn.Message, fn func(Stored) error) error {
	if !bytes.Contains(m.Data, []byte(`"blob":{"digest":"`)) {
		return nil
	}
	var commit struct {
		Events []struct {
			Blob *blob.Ref `json:"blob"`
		} `json:"events"`
		Tenant session.Tenant `json:"tenant"`
	}
	if json.Unmarshal(m.Data, &commit) != nil || session.ValidID("tenant", string(commit.Tenant)) != nil {
		return nil // no commit
	}
	for _, e := range commit.Events {
		if e.Blob == nil {
			continue
		}
		data, err := c.readBlob(ctx, commit.Tenant, e.Blob.Digest)
		if err != nil {
			return err
		}
		if data == nil {
			continue
		}
		if err := fn(Stored{Stream: streams.StreamBlob, Subject: streams.PrefixBlob + string(commit.Tenant) + "." + e.Blob.Digest.String(), Data: data}); err != nil {
			return err
		}
	}
	return nil
}
