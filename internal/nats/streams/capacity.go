package streams

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/messages"
)

// Room is the kind of appends that an event stream still accepts.
type Room uint8

// The values of Room, from everything to nothing.
const (
	// RoomAll accepts everything.
	RoomAll Room = iota
	// RoomOpen accepts appends of open runs; no new run begins.
	RoomOpen
	// RoomEnds accepts only signals that journal.IsTerminalOnly reports: runs end, are
	// cancelled and answered, and no run makes a step.
	RoomEnds
	// RoomNone accepts no appends: the disk is full.
	RoomNone
)

// String returns the name that reports and messages use.
func (r Room) String() string {
	return [...]string{messages.RoomAll, messages.RoomOpen, messages.RoomEnds, messages.RoomNone}[min(r, RoomNone)]
}

const (
	// The percentages of the limit from which on a stream accepts less.
	openOnly = 85
	endsOnly = 95
	// sharesFrom is the percentage of the limit from which on no new run begins for a
	// tenant that holds more than half of a stream with several tenants.
	sharesFrom = 70
)

// Fill is how much an event stream holds.
type Fill struct {
	Bytes uint64
	Max   int64 // its limit; zero or less is none
}

// Room returns the appends that a stream with this usage accepts.
func (f Fill) Room() Room {
	switch {
	case f.over(endsOnly):
		return RoomEnds
	case f.over(openOnly):
		return RoomOpen
	}
	return RoomAll
}

// over reports whether at least a part of the limit is used, in percent.
func (f Fill) over(percent uint64) bool {
	return f.Max > 0 && f.Bytes >= uint64(f.Max)/100*percent+uint64(f.Max)%100*percent/100
}

// refuses reports whether other tenants take precedence over a new run of this one: the
// tenant holds more than half of the stored bytes, others hold some too, and the stream is
// filling up.
func (f Fill) refuses(h TenantUsage) bool {
	return f.over(sharesFrom) && !h.Alone && h.Bytes > f.Bytes/2
}

// String is like "86 % of 1.0 GiB".
func (f Fill) String() string {
	if f.Max <= 0 {
		return bytesText(int64(f.Bytes))
	}
	return fmt.Sprintf("%.0f %% of %s", 100*float64(f.Bytes)/float64(f.Max), bytesText(f.Max))
}

// needed are the streams, beside those of events, that every run stores something in: its
// submission, large values, its result. No run begins while one of them is nearly full, so
// that open runs end before it is full.
var needed = []string{StreamBlob, "KV_" + BucketAlias, StreamResult}

// RemedyOf returns the operator's remedy for a full stream.
func RemedyOf(stream string) string {
	switch {
	case stream == StreamBlob:
		return "remove unreferenced blobs with rath cluster prune --blobs, or set a larger MaxBytes with rath cluster provision"
	case stream == "KV_"+BucketAlias:
		return "give the stream a larger MaxBytes with rath cluster provision: it keeps the ids of all runs, so that none is used twice"
	case stream == StreamResult:
		return "archive finished sessions with rath cluster prune, which frees their results, or give the stream a larger MaxBytes with rath cluster provision"
	}
	return Remedy
}

// Remedy is the operator's remedy for a full event stream.
const Remedy = "archive finished sessions with rath cluster prune, or give the stream a larger MaxBytes with rath cluster provision"

// StreamUsage is the usage of one stream: the last sample, and for an event stream the
// bytes appended over this connection since then.
type StreamUsage struct {
	Bytes, since, Max atomic.Int64
	Needed            bool // one of needed
	said              Room // the value last logged
	silent            bool // the last sample failed
}

func (g *StreamUsage) fill() Fill {
	return Fill{Bytes: uint64(g.Bytes.Load() + g.since.Load()), Max: g.Max.Load()}
}

// room returns the appends that the stream accepts. Only logs keep a reserve for ends of
// runs.
func (g *StreamUsage) room() Room {
	r := g.fill().Room()
	if g.Needed {
		r = min(r, RoomOpen)
	}
	return r
}

const (
	// lookEvery is the interval between samples of the streams' usage, and lookAgain the
	// minimum interval, when appends fail.
	lookEvery = 3 * time.Second
	lookAgain = 500 * time.Millisecond
	// perMessage is the approximate overhead of a stored message beside subject and data,
	// in bytes.
	perMessage = 96
)

// capacity is the usage of the streams that this connection watches.
type capacity struct {
	conn     *conn.Conn
	messages *conn.Messages
	o        *Options

	Scarce atomic.Bool   // a stream is so full that logs keep room for ends
	look   chan struct{} // requests a sample at once

	saidDisk Room                      // the value last logged for the disk
	apart    bool                      // the clock difference was logged
	probed   atomic.Pointer[time.Time] // when Stores last stored something

	mu      sync.RWMutex
	Streams map[string]*StreamUsage

	tenants tenantUsages
}

func newCapacity(c *conn.Conn, o *Options) *capacity {
	return &capacity{conn: c, messages: c.Messages, o: o, look: make(chan struct{}, 1), Streams: map[string]*StreamUsage{}}
}

// of returns the usage of a stream, nil for an unwatched one.
func (r *capacity) of(stream string) *StreamUsage {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.Streams[stream]
}

// Fill returns the usage of a stream, or the zero Fill for a stream that is not watched.
func (r *capacity) Fill(stream string) Fill {
	if g := r.of(stream); g != nil {
		return g.fill()
	}
	return Fill{}
}

// MayRefuse reports whether new runs may not begin for want of room.
func (r *capacity) MayRefuse() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, g := range r.Streams {
		if g.fill().over(sharesFrom) {
			return true
		}
	}
	return false
}

// Appended records bytes stored in a stream.
func (r *capacity) Appended(stream string, bytes int) {
	g := r.of(stream)
	if g == nil {
		return
	}
	before := g.fill()
	g.since.Add(int64(bytes + perMessage))
	if before.Room() != g.fill().Room() {
		r.Soon()
	}
}

// Soon requests a sample without delay.
func (r *capacity) Soon() {
	select {
	case r.look <- struct{}{}:
	default:
	}
}

// WatchRoom watches the usage of the generation's event streams, and of the other streams
// that every run needs, until ctx ends. From then on this connection's log and intake keep
// a reserve for messages that must not fail. At 85 % of a stream's MaxBytes PullTasks
// begins no new run there. At 95 % of an event stream's MaxBytes the log rejects everything
// that journal.IsTerminalOnly does not report, with ErrFull and without a request to the
// servers. Without WatchRoom the log tries every append until JetStream rejects it. Every
// connection that sees the disk keeps the disk's reserve in the same way, see Disk.
func (r *capacity) WatchRoom(ctx context.Context) error {
	r.mu.Lock()
	for p := range r.o.Partitions {
		r.Streams[EventStream(r.o.Generation, p)] = &StreamUsage{}
	}
	for _, name := range needed {
		r.Streams[name] = &StreamUsage{Needed: true}
	}
	r.mu.Unlock()
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		r.lookAtRooms(ctx)
		conn.Pause(ctx, lookAgain)
		select {
		case <-t.C:
		case <-r.look:
		case <-ctx.Done():
			return nil
		}
	}
}

// lookAtRooms samples all watched streams.
func (r *capacity) lookAtRooms(ctx context.Context) {
	r.lookAtDisk()
	r.mu.RLock()
	names := slices.Sorted(maps.Keys(r.Streams))
	r.mu.RUnlock()
	scarce := false
	for i, name := range names {
		g := r.of(name)
		asked := time.Now()
		info, err := r.messages.StreamInfo(ctx, name)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			if !g.silent && !conn.IsTransient(err) {
				r.conn.Logger.Warn("how full a stream is could not be asked", "stream", name, "err", conn.StreamError(err))
			}
			g.silent = true
		} else {
			g.silent = false
			if i == 0 { // of one server: the clocks of others may differ
				r.lookAtClock(asked, info.TimeStamp)
			}
			g.Max.Store(info.Config.MaxBytes)
			g.since.Store(0)
			g.Bytes.Store(int64(info.State.Bytes))
		}
		f := g.fill()
		room := g.room()
		scarce = scarce || f.Room() == RoomEnds
		if room == g.said {
			continue
		}
		g.said = room
		switch l := r.conn.Logger.With("stream", name, "holds", f.String()); room {
		case RoomAll:
			l.Info("a stream has room again")
		case RoomOpen:
			l.Warn("a stream is nearly full: no new runs start", "remedy", RemedyOf(name))
		case RoomEnds:
			l.Error("an event stream is full: runs can only end, and resume when there is room", "remedy", Remedy)
		}
	}
	r.Scarce.Store(scarce)
}

// clocksApart is the difference between this machine's clock and a server's above which a
// warning is logged.
const clocksApart = 2 * time.Second

// lookAtClock logs when this machine's clock differs from the clock of the server that
// answered a request with its time: otherwise no caller notices why runs meet their
// deadlines early or late. The duration of the request does not count as a difference.
func (r *capacity) lookAtClock(asked, server time.Time) {
	ahead := asked.Sub(server)
	if ahead < 0 {
		ahead = min(time.Since(server), 0)
	}
	apart := ahead.Abs() > clocksApart
	if apart == r.apart {
		return
	}
	r.apart = apart
	if apart {
		r.conn.Logger.Warn("the clocks of this machine and the NATS server differ: runs meet deadlines early or late by the difference", "ahead", ahead.Round(time.Second), "remedy", "keep the clocks of all machines in step by NTP")
	} else {
		r.conn.Logger.Info("the clocks of this machine and the NATS server are in step again")
	}
}

// Fills returns the last sampled usage of the watched streams, by their names. It sends no
// request.
func (r *capacity) Fills() map[string]Fill {
	r.mu.RLock()
	defer r.mu.RUnlock()
	fills := make(map[string]Fill, len(r.Streams))
	for name, g := range r.Streams {
		fills[name] = g.fill()
	}
	return fills
}

// Full returns the watched streams that do not accept everything, preceded by the disk of
// the store if it does not.
func (r *capacity) Full() []messages.StreamFill {
	return slices.DeleteFunc(r.Room(), func(f messages.StreamFill) bool { return f.Room == RoomAll.String() })
}

// Room returns the usage of the watched streams, preceded by the disk's if the disk does
// not accept everything.
func (r *capacity) Room() []messages.StreamFill {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []messages.StreamFill
	if d, room := r.DiskRoom(); room != RoomAll {
		out = append(out, d.fillOfDisk())
	}
	for _, name := range slices.Sorted(maps.Keys(r.Streams)) {
		g := r.Streams[name]
		f := g.fill()
		out = append(out, messages.StreamFill{Stream: name, Bytes: f.Bytes, MaxBytes: uint64(f.Max), Room: g.room().String()})
	}
	return out
}
