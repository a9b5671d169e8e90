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

// A checkpoint says how far a reader has read a stream and what it has
// gathered, so that the next one need not read all of it again. It lies in
// the stream SNAP and is a cache like a snapshot: its reader believes only
// what agrees with the stream that it is about.
//
// There is no durable consumer behind it: the position and what was gathered
// up to there are one message, and a consumer that keeps its own position
// would have to sync it.

// MaxCheckpoint is the most bytes of a checkpoint; a larger one is not saved,
// and the one before it stays.
const MaxCheckpoint = 900 << 10

// zipCheckpoint is from how many bytes on one is compressed: that of ten
// thousand open runs fits then.
const zipCheckpoint = 64 << 10

// maxUnzipped bounds what a compressed checkpoint may hold.
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

// CheckpointSubject has more tokens after its prefix than that of a snapshot.
func CheckpointSubject(name string, generation, partition uint32) string {
	return fmt.Sprintf("%s_.%s.%d.%d", streams.PrefixSnap, name, generation, partition)
}

// Pack compresses what is large.
func Pack(data []byte) ([]byte, error) {
	if len(data) <= zipCheckpoint {
		return data, nil
	}
	return zip(data)
}

// Unpack returns what Pack was given, at most maxUnzipped bytes of it.
func Unpack(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, gzipMagic) {
		return data, nil
	}
	return unzip(data)
}

// LoadCheckpoint reads the newest checkpoint into v, and returns the sequence of
// its message, zero if there is none. One that cannot be read leaves v as it is.
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

// SaveCheckpoint stores a checkpoint. Losing one is harmless, so it is tried
// once.
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
	// checkpointBusy is how often one is saved while changes do not end: what
	// a crash makes its successor read again.
	checkpointBusy = 5 * time.Second
	// CheckpointLast bounds the last one, at the end.
	CheckpointLast = 2 * time.Second
)

// Pacer says when to save a checkpoint: a while after the last change, and now
// and then while there are more. Nothing runs while nothing changes.
type Pacer struct {
	Timer *time.Timer
	since time.Time // of the first change that is not saved
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
