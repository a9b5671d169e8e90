package eventlog

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
)

// A checkpoint holds a reader's position in a stream and the data it has gathered, so that
// the next reader need not read the whole stream again. It lies in the stream SNAP and is a
// cache like a snapshot: its reader uses it only as far as it agrees with the stream.
//
// A checkpoint has no durable consumer: the position and the data gathered up to there are
// one message, and a consumer with a position of its own would have to sync it.

// MaxCheckpoint is the maximum size of a checkpoint in bytes; a larger one is not saved,
// and the previous one stays.
const MaxCheckpoint = 900 << 10

// zipCheckpoint is the size in bytes above which a checkpoint is compressed: ten thousand
// open runs fit then.
const zipCheckpoint = 64 << 10

// maxUnzipped bounds the size of a compressed checkpoint's contents.
const maxUnzipped = 64 << 20

var gzipMagic = []byte{0x1f, 0x8b}

func zip(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	err = errors.Join(err, w.Close())
	return b.Bytes(), err
}

func unzip(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, maxUnzipped))
}

// CheckpointSubject returns the subject of a checkpoint, which has more tokens after its
// prefix than a snapshot's.
func CheckpointSubject(name string, generation, partition uint32) string {
	return fmt.Sprintf("%s_.%s.%d.%d", streams.PrefixSnap, name, generation, partition)
}

// Pack compresses large data.
func Pack(data []byte) ([]byte, error) {
	if len(data) <= zipCheckpoint {
		return data, nil
	}
	return zip(data)
}

// Unpack returns the data given to Pack, at most maxUnzipped bytes of it.
func Unpack(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, gzipMagic) {
		return data, nil
	}
	return unzip(data)
}

// LoadCheckpoint reads the newest checkpoint into v, and returns the sequence of its
// message, zero if there is none. An unreadable checkpoint leaves v unchanged.
func (c *Logs) LoadCheckpoint(ctx context.Context, subject string, v any) (revision uint64, err error) {
	m, err := c.messages.LeaderLast(ctx, streams.StreamSnap, subject)
	switch {
	case errors.Is(err, conn.ErrNoMessage):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("nats/eventlog: load checkpoint %s: %w", subject, err)
	}
	if data, err := Unpack(m.Data); err == nil {
		_ = json.Unmarshal(data, v)
	}
	return m.Seq, nil
}

// SaveCheckpoint stores a checkpoint. It makes one attempt, because a lost checkpoint is
// harmless.
func (c *Logs) SaveCheckpoint(ctx context.Context, subject string, v any) error {
	data, err := json.Marshal(v)
	if err == nil {
		data, err = Pack(data)
	}
	if err == nil && len(data) > MaxCheckpoint {
		err = fmt.Errorf("%d bytes, at most %d are kept", len(data), MaxCheckpoint)
	}
	if err == nil {
		_, err = c.messages.Publish(ctx, &nats.Msg{Subject: subject, Data: data})
	}
	if err != nil {
		return fmt.Errorf("nats/eventlog: save checkpoint %s: %w", subject, err)
	}
	return nil
}

const (
	// checkpointIdle is how long after the last change a checkpoint is saved.
	checkpointIdle = 500 * time.Millisecond
	// checkpointBusy is how often a checkpoint is saved while changes continue: it bounds
	// the part that a successor reads again after a crash.
	checkpointBusy = 5 * time.Second
	// CheckpointLast bounds the saving of the last checkpoint, at the end.
	CheckpointLast = 2 * time.Second
)

// Pacer decides when to save a checkpoint: a while after the last change, and at intervals
// while changes continue. It is idle while nothing changes.
type Pacer struct {
	Timer *time.Timer
	since time.Time // of the first unsaved change
}

// NewPacer returns a pacer whose Timer is not running.
func NewPacer() *Pacer {
	p := &Pacer{Timer: time.NewTimer(time.Hour)}
	p.Timer.Stop()
	return p
}

// Changed notes a change.
func (p *Pacer) Changed() {
	now := time.Now()
	if p.since.IsZero() {
		p.since = now
	}
	p.Timer.Reset(min(checkpointIdle, max(p.since.Add(checkpointBusy).Sub(now), 0)))
}

// Dirty reports whether there are changes since Saved.
func (p *Pacer) Dirty() bool { return !p.since.IsZero() }

// Saved notes that all changes are saved.
func (p *Pacer) Saved() { p.since = time.Time{} }

// Stop ends the pacer: its Timer fires no more.
func (p *Pacer) Stop() { p.Timer.Stop() }
