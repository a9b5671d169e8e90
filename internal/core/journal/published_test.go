package journal

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// topic is the log of an event.
type topic struct {
	t   *testing.T
	log *commitlog.Memory
	s   Store
	now time.Time
	k   session.Key
}

func newTopic(t *testing.T) *topic {
	p := &topic{t: t, log: &commitlog.Memory{}, now: time.UnixMilli(1_000_000), k: session.Key{Tenant: "t", ID: "k-1-0"}}
	p.s = NewStore(p.log, &StoreOptions{Now: func() time.Time { return p.now }})
	return p
}

func (p *topic) send(id run.ID, s EventSignal) error {
	return p.s.Apply(p.t.Context(), Signal{To: p.k, Run: id, Event: &s})
}

func (p *topic) publish(id, value string) error {
	return p.send("", EventSignal{Published: &Published{ID: id, Key: "k", Name: "n", Value: value}})
}

func (p *topic) await(id run.ID, n uint64, ws ...Wait) {
	p.t.Helper()
	must.Do(p.t, p.send(id, EventSignal{Awaited: &EventAwaited{For: ws, N: n, Run: id, Session: session.ID(id + "-home")}}))
}

func waitAt(path run.Path, after uint64, due int64) Wait {
	w := Wait{After: after, Due: due, Kind: run.WaitEvent, Log: "k-1-0", Path: path}
	if after > 0 {
		w.Since = 1_000_000
	}
	return w
}

// facts returns the decisions of the log as texts.
func (p *topic) facts() (all []string, open int64) {
	for e, err := range p.log.Read(p.t.Context(), p.k, commitlog.Position{}) {
		must.Do(p.t, err)
		for _, f := range Facts(e.Commit) {
			if s, ok := KeyWork(f.What); ok {
				open = s.Open
			}
			switch v := f.What.(type) {
			case EventDelivered:
				var to []string
				for _, r := range v.To {
					to = append(to, string(r.Run)+"/"+string(r.Path))
				}
				all = append(all, fmt.Sprintf("%d to %s", v.Event.Seq, strings.Join(to, " ")))
			case EventReleased:
				all = append(all, "without "+string(v.Run))
			}
		}
	}
	return all, open
}

func (p *topic) want(open int64, want ...string) {
	p.t.Helper()
	if got, n := p.facts(); n != open || fmt.Sprint(got) != fmt.Sprint(want) {
		p.t.Errorf("the log decides %q with %d open, want %q with %d", got, n, want, open)
	}
}

// TestEventForWaits: each wait gets the first event after the one that its run had, the
// waits of a later commit replace those before, and a wait leaves with its run or its time.
func TestEventForWaits(t *testing.T) {
	p := newTopic(t)
	p.await("r1", 3, waitAt("1", 0, 0))
	p.await("r1", 2, waitAt("0", 0, 0)) // arrives late
	p.await("r2", 1, waitAt("1.0", 0, 0), waitAt("1.1", 1, 0))
	p.await("r3", 1, waitAt("1", 0, 0))
	must.Do(t, p.send("r3", EventSignal{Released: &EventReleased{N: 5, Run: "r3", Session: "r3-home"}}))
	must.Do(t, p.send("r3", EventSignal{Released: &EventReleased{N: 5, Run: "r3", Session: "r3-home"}})) // no longer there
	must.Do(t, p.publish("a", "1"))
	p.want(1, "without r3", "1 to r1/1 r2/1.0")
	must.Do(t, p.publish("b", "2"))
	p.await("r1", 5, waitAt("2", 1, 0)) // the event came before
	p.await("r4", 1, waitAt("1", 0, 0))
	must.Do(t, p.publish("c", "3"))
	p.await("r1", 7, waitAt("3", 2, 0), waitAt("4", 3, p.now.UnixMilli()+1000))
	p.want(1, "without r3", "1 to r1/1 r2/1.0", "2 to r2/1.1", "2 to r1/2", "1 to r4/1", "3 to r1/3")
	p.now = p.now.Add(2 * time.Minute)
	must.Do(t, p.s.Apply(t.Context(), Signal{To: p.k, Tick: true}))
	if err := p.s.Apply(t.Context(), Signal{To: p.k, Tick: true}); !errors.Is(err, run.ErrState) {
		t.Errorf("a tick without a decision: %v", err)
	}
	p.want(0, "without r3", "1 to r1/1 r2/1.0", "2 to r2/1.1", "2 to r1/2", "1 to r4/1", "3 to r1/3", "without ")
}

// TestEventAnew: a log without use is closed, accepts no fact, and is removed. Begun anew, it
// brings its events to a run that has a later place of the log before.
func TestEventAnew(t *testing.T) {
	p := newTopic(t)
	for _, id := range []string{"a", "b"} {
		must.Do(t, p.publish(id, "1"))
	}
	closing := Signal{To: p.k, CloseKey: &KeyClosed{By: "ann"}}
	if err := p.s.Apply(t.Context(), closing); !errors.Is(err, run.ErrState) {
		t.Errorf("closed with events that are kept: %v", err)
	}
	last := p.now.UnixMilli()
	p.now = p.now.Add(EventsKept)
	must.Do(t, p.s.Apply(t.Context(), closing))
	must.Do(t, p.s.Apply(t.Context(), closing))
	if err := p.publish("c", "1"); !errors.Is(err, session.ErrUnavailable) {
		t.Errorf("published in a closed log: %v", err)
	}
	p = newTopic(t)
	p.now = p.now.Add(EventsKept)
	wait := waitAt("3", 2, 0)
	wait.Since = last
	must.Do(t, p.publish("c", "1"))
	p.await("r1", 9, wait)
	p.want(0, "1 to r1/3")
	wait.Since = p.now.UnixMilli()
	p.await("r1", 11, wait)
	p.want(1, "1 to r1/3")
}

// TestEventPublishedAgain: an id is an event's for as long as the log keeps it, and a log
// keeps events for a week, and bounded ones.
func TestEventPublishedAgain(t *testing.T) {
	p := newTopic(t)
	must.Do(t, p.publish("a", "1"))
	must.Do(t, p.publish("a", "1"))
	if err := p.publish("a", "2"); !errors.Is(err, run.ErrKeyReused) || !strings.Contains(err.Error(), "event n k with id a was published with another value at ") {
		t.Errorf("another value under the same id: %v", err)
	}
	p.now = p.now.Add(EventsKept)
	must.Do(t, p.publish("a", "2"))
	p.await("r1", 1, waitAt("1", 0, 0))
	p.want(0, "2 to r1/1")
	large := `"` + strings.Repeat("x", run.MaxEventValue-2) + `"`
	for i := range 2 * maxEvents {
		value := ""
		if i%8 == 0 {
			value = large
		}
		must.Do(t, p.publish(fmt.Sprint(i), value))
	}
	w := must.Get(LoadStateMachine(t.Context(), p.log, NewValues(p.log), p.k, "i"))(t)
	size := 0
	for _, e := range w.RunState().events.Events {
		size += len(e.Value)
	}
	if n := len(w.RunState().events.Events); n > maxEvents || n < 64 || size > maxEventBytes {
		t.Errorf("the log keeps %d events of %d bytes", n, size)
	}
}

// TestManyWaitsForOneEvent: an event for ten thousand waits goes to all of them, each once,
// in bounded commits.
func TestManyWaitsForOneEvent(t *testing.T) {
	p := newTopic(t)
	const runs = 10_000
	for i := range runs {
		p.await(run.ID(fmt.Sprint("r", i)), 1, waitAt("1", 0, 0))
	}
	must.Do(t, p.publish("a", "1"))
	for p.s.Apply(t.Context(), Signal{To: p.k, Tick: true}) == nil {
	}
	got := map[run.ID]int{}
	for e, err := range p.log.Read(t.Context(), p.k, commitlog.Position{}) {
		must.Do(t, err)
		facts := Facts(e.Commit)
		for i := range facts {
			if v, ok := facts[i].What.(EventDelivered); ok && len(v.To) > maxDecided {
				t.Errorf("commit %d delivers %d times", e.Commit.Seq, len(v.To))
			}
		}
		for _, w := range must.Get(Followups(e, facts))(t) {
			if r := w.Signal.Received; r != nil && r.Event.Seq == 1 && r.Path == "1" {
				got[w.Signal.Run]++
			}
		}
	}
	for i := range runs {
		if got[run.ID(fmt.Sprint("r", i))] != 1 {
			t.Fatalf("run %d of %d got the event %d times", i, runs, got[run.ID(fmt.Sprint("r", i))])
		}
	}
	if _, open := p.facts(); open != 0 {
		t.Errorf("%d runs wait", open)
	}
}
