package follow

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Handlers says what to do with what is heard of a run. All functions are
// called from one goroutine; nil ones are left out.
type Handlers struct {
	Record func(messages.Record) // of the run's tree, in the order of the stream
	Delta  func(messages.Delta)  // provisional pieces of model output
	Live   func(*messages.Live)  // what the run is at, asked while nothing comes
	Idle   func(d time.Duration) // nothing came for so long
	// Person is told once of each run of the tree that waits for a person, and
	// goes on waiting: the record is of kind Waiting or Review.
	Person func(messages.Record)
	// Held is told once that the run's task waits for room, and goes on waiting.
	Held func(messages.Record)
	// Follower watches since before the run was submitted; nil follows it now.
	Follower *client.Follower
}

// Outcome is how watching a run ended.
type Outcome struct {
	Result *messages.Result // nil for a run that did not end
	Review *messages.Record // what a person has to decide about the run itself
	// Asked is what runs of the tree wait for, where no answer can come while this
	// process holds the store.
	Asked []messages.Record
	// Stands is whether no node works here, so that nothing more comes.
	Stands bool
}

const (
	// idleEvery is how often a watcher that hears nothing is told so.
	idleEvery = 100 * time.Millisecond
	// lastRecords is how long a watcher waits for the records of the end after
	// the result, which takes another way.
	lastRecords = 5 * time.Second
	// askedAfter is how long nothing must have come before a question ends the
	// watching, or before a watcher asks how the run stands: it may have stopped
	// before it was watched.
	askedAfter = time.Second
	// askedAgain is when it asks again after a question without an answer.
	askedAgain = 5 * time.Second
	// liveAfter is how long nothing must have come before a watcher asks what the run
	// is at, and how long it waits before it asks again.
	liveAfter = time.Second
)

// watcher is the state of watching one run.
type watcher struct {
	s    *app.System
	w    Handlers
	id   run.ID
	root session.ID // of the tree; "" until it is known

	out   Outcome
	begun bool            // a record came that a node works on the run
	ended bool            // the record of the run's end came
	known map[run.ID]bool // runs that records came of
	asked map[run.ID]messages.Record
	told  map[run.ID]bool // whose question Person got
	last  time.Time       // when something came
}

// record takes a record of the run's tree, and none of another one.
func (o *watcher) record(r messages.Record) {
	o.last = time.Now()
	if o.root == "" && r.Run == o.id {
		o.root = r.Root
	}
	if r.Root != o.root {
		return
	}
	if o.w.Record != nil {
		o.w.Record(r)
	}
	o.known[r.Run] = true
	if r.Home != "" {
		return // of the run in another session than its own
	}
	switch r.Kind {
	case messages.KindWaiting:
		if r.Asks() != "" {
			o.ask(r)
		}
	case messages.KindReview:
		o.ask(r)
	case messages.KindClaimed, messages.KindEnded, messages.KindAnswered, messages.KindResolved:
		delete(o.asked, r.Run)
		if r.Run == o.id {
			o.begun = true
			o.out.Review = nil
			o.ended = r.Kind == messages.KindEnded
		}
	}
}

// ask takes a question to a person.
func (o *watcher) ask(r messages.Record) {
	if r.Run == o.id && r.Kind == messages.KindReview {
		o.out.Review = &r
		return
	}
	o.asked[r.Run] = r
	delete(o.told, r.Run)
}

// stand takes how runs stand of which no record came.
func (o *watcher) stand(all []messages.Record) {
	for _, r := range all {
		if o.root == "" {
			o.root = r.Root
		}
		if !o.known[r.Run] && r.Kind != "" {
			o.ask(r)
		}
	}
}

// rests tells of the time that nothing came, and of questions, and reports
// whether only a person makes the run go on, so that watching ends.
func (o *watcher) rests() bool {
	silence := time.Since(o.last)
	if o.w.Idle != nil {
		o.w.Idle(silence)
	}
	if o.out.Result != nil {
		return false
	}
	quiet := silence > 3*idleEvery
	if o.out.Review != nil && quiet {
		return true
	}
	asking := slices.Sorted(maps.Keys(o.asked))
	if o.s.Own() {
		if silence <= askedAfter {
			return false
		}
		if len(asking) == 0 {
			o.out.Stands = o.s.Alone && o.known[o.id]
			return o.out.Stands
		}
		for _, who := range asking {
			o.out.Asked = append(o.out.Asked, o.asked[who])
		}
		return true
	}
	if o.w.Person != nil && quiet {
		for _, who := range asking {
			if !o.told[who] {
				o.told[who] = true
				o.w.Person(o.asked[who])
			}
		}
	}
	return false
}

// Newest returns the cursor before the lineage of all that is committed later.
func Newest(ctx context.Context, s *app.System) (string, error) {
	page, err := s.Lineage(ctx, "", client.TailEnd, 1)
	return page.Next, err
}
