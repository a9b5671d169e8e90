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

// Room is what an event stream still takes.
type Room uint8

// What a stream takes, from all to the least.
const (
	// RoomAll takes everything.
	RoomAll Room = iota
	// RoomOpen takes what open runs append; no new run begins.
	RoomOpen
	// RoomEnds takes only what journal.IsTerminalOnly reports: runs end, are cancelled and
	// answered, and none of them makes a step.
	RoomEnds
	// RoomNone takes nothing: the disk is full.
	RoomNone
)

// String returns what people and programs are told.
func (r Room) String() string {
	return [...]string{messages.RoomAll, messages.RoomOpen, messages.RoomEnds, messages.RoomNone}[min(r, RoomNone)]
}

const (
	// The parts of its limit, in percent, from which on a stream takes less.
	openOnly = 85
	endsOnly = 95
	// sharesFrom is the part from which on no new run begins for a tenant that
	// holds more than half of what a stream with several tenants holds.
	sharesFrom = 70
)

// Fill is how much an event stream holds.
type Fill struct {
	Bytes uint64
	Max   int64 // its limit; nothing above zero is none
}

// Room says what a stream that is so full takes.
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

// refuses reports whether a new run of a tenant may not begin because others
// come first: he holds more than half of what is stored, others hold something
// too, and the stream begins to be full.
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

// needed are the streams beside those of events that every run stores something in:
// what it was submitted as, large values, its result. Where one of them is nearly
// full no run begins, so that those which are open end before it is full.
var needed = []string{StreamBlob, "KV_" + BucketAlias, StreamResult}

// RemedyOf is what an operator does about a stream that is full.
func RemedyOf(stream string) string {
	switch {
	case stream == StreamBlob:
		return "remove blobs that nothing names with rath cluster prune --blobs, or give the stream a larger MaxBytes with rath cluster provision"
	case stream == "KV_"+BucketAlias:
		return "give the stream a larger MaxBytes with rath cluster provision: it keeps the ids of all runs, so that none is used twice"
	case stream == StreamResult:
		return "archive finished sessions with rath cluster prune, which frees their results, or give the stream a larger MaxBytes with rath cluster provision"
	}
	return Remedy
}

// Remedy is what an operator does about an event stream that is full.
const Remedy = "archive finished sessions with rath cluster prune, or give the stream a larger MaxBytes with rath cluster provision"

// StreamUsage is how full one stream is: as it was last asked, and with what was
// appended to it over this connection since then, if it is one of events.
type StreamUsage struct {
	Bytes, since, Max atomic.Int64
	Needed            bool // one of those
	said              Room // what was logged last
	silent            bool // it could not be asked
}

func (g *StreamUsage) fill() Fill {
	return Fill{Bytes: uint64(g.Bytes.Load() + g.since.Load()), Max: g.Max.Load()}
}

// room is what the stream takes. Nothing is kept back for ends but by logs.
func (g *StreamUsage) room() Room {
	r := g.fill().Room()
	if g.Needed {
		r = min(r, RoomOpen)
	}
	return r
}

const (
	// lookEvery is how often the streams are asked how full they are, and
	// lookAgain the least time between two times, when appends fail.
	lookEvery = 3 * time.Second
	lookAgain = 500 * time.Millisecond
	// perMessage is about what a stream stores of a message beside subject and data.
	perMessage = 96
)

// capacity is how full the streams are that this connection watches.
type capacity struct {
	conn     *conn.Conn
	messages *conn.Messages
	o        *Options

	Scarce atomic.Bool   // a stream is so full that logs keep room for ends
	look   chan struct{} // asks for a look at once

	saidDisk Room                      // what was logged last about the disk
	apart    bool                      // that the clocks are was logged
	probed   atomic.Pointer[time.Time] // when Stores last stored something

	mu      sync.RWMutex
	Streams map[string]*StreamUsage

	tenants tenantUsages
}

func newCapacity(c *conn.Conn, o *Options) *capacity {
	return &capacity{conn: c, messages: c.Messages, o: o, look: make(chan struct{}, 1), Streams: map[string]*StreamUsage{}}
}

// of returns the usage of a stream, nil for one that is not watched.
func (r *capacity) of(stream string) *StreamUsage {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.Streams[stream]
}

// Fill says how full a stream is, nothing for one that is not watched.
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

// Appended notes what was stored in a stream.
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

// Soon has the streams looked at without delay.
func (r *capacity) Soon() {
	select {
	case r.look <- struct{}{}:
	default:
	}
}

// WatchRoom keeps an eye on how full the event streams of the generation are, and
// the others that every run needs, until ctx ends. From then on this connection's
// log and intake keep room for what must not fail: at 85 % of a stream's MaxBytes
// PullTasks begins no new run there, and at 95 % of an event stream's the log
// refuses what journal.IsTerminalOnly does not report, as ErrFull and without asking the
// servers. Without it everything is tried until JetStream refuses it. The reserve on
// the disk, see Disk, is kept in the same way, by every connection that sees the disk.
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

// lookAtRooms asks all streams that are watched.
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
			if i == 0 { // of one server: those of others may tell another time
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
			l.Warn("a stream is nearly full: no new runs begin", "remedy", RemedyOf(name))
		case RoomEnds:
			l.Error("an event stream is full: runs only end, and go on when there is room", "remedy", Remedy)
		}
	}
	r.Scarce.Store(scarce)
}

// clocksApart is how far the clock of this machine may be from that of a server before it
// is told.
const clocksApart = 2 * time.Second

// lookAtClock says when the clock of this machine is not in step with that of the server
// which answered a request with its time: no caller notices otherwise why runs meet their
// deadlines early or late. However long the answer took counts for neither.
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
		r.conn.Logger.Warn("the clock of this machine and that of the NATS server are apart: runs meet deadlines early or late by as much", "ahead", ahead.Round(time.Second), "remedy", "keep the clocks of all machines in step by NTP")
	} else {
		r.conn.Logger.Info("the clock of this machine and that of the NATS server are in step again")
	}
}

// Fills returns how full the watched streams are, by their names, as they were last
// looked at. It asks no server.
func (r *capacity) Fills() map[string]Fill {
	r.mu.RLock()
	defer r.mu.RUnlock()
	fills := make(map[string]Fill, len(r.Streams))
	for name, g := range r.Streams {
		fills[name] = g.fill()
	}
	return fills
}

// Full returns the watched streams that do not take everything, and first the disk of
// the store if that does not.
func (r *capacity) Full() []messages.StreamFill {
	return slices.DeleteFunc(r.Room(), func(f messages.StreamFill) bool { return f.Room == RoomAll.String() })
}

// Room returns how full the watched streams are, and first the disk of the store if that
// does not take everything.
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
