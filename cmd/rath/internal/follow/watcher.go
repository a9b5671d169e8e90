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

// Handlers receive the messages of a run. All functions are called from one goroutine;
// nil ones are skipped.
type Handlers struct {
	Record func(messages.Record) // of the run's tree, in the order of the stream
	Delta  func(messages.Delta)  // provisional pieces of model output
	Live   func(*messages.Live)  // the run's progress, requested in silences
	Idle   func(d time.Duration) // no message came for d
	// Person is called once for each run of the tree that waits for a person and still
	// waits: the record is of kind Waiting or Review.
	Person func(messages.Record)
	// Held is called once if the run's task waits for room and still waits.
	Held func(messages.Record)
	// Follower watches since before the run was submitted; nil follows it now.
	Follower *client.Follower
}

// Outcome is the outcome of watching a run.
type Outcome struct {
	Result *messages.Result // nil for a run that did not end
	Review *messages.Record // the decision that a person has to make about the run
	// Asked holds the questions of runs of the tree that no answer can reach while this
	// process holds the store.
	Asked []messages.Record
	// Stands reports that no node works here, so that no more messages come.
	Stands bool
}

const (
	// idleEvery is how often a watcher is called during a silence.
	idleEvery = 100 * time.Millisecond
	// lastRecords is how long a watcher waits for the last records after the result,
	// which arrives on another path.
	lastRecords = 5 * time.Second
	// askedAfter is the silence after which a question ends the watching, or after
	// which a watcher requests the run's state: the run may have stopped before it was
	// watched.
	askedAfter = time.Second
	// askedAgain is the time after which an unanswered request is repeated.
	askedAgain = 5 * time.Second
	// liveAfter is the silence after which a watcher requests the run's progress, and
	// the interval of further requests.
	liveAfter = time.Second
)

// watcher is the state of watching one run.
type watcher struct {
	s    *app.System
	w    Handlers
	id   run.ID
	root session.ID // of the tree; "" while unknown

	out   Outcome
	begun bool            // a record named a node that works on the run
	ended bool            // the record of the run's end arrived
	known map[run.ID]bool // runs with records so far
	asked map[run.ID]messages.Record
	told  map[run.ID]bool // runs whose question Person got
	last  time.Time       // time of the last message
}

// record handles a record of the run's tree, and ignores records of other trees.
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
		return // of the run in a session other than its own
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

// ask stores a question to a person.
func (o *watcher) ask(r messages.Record) {
	if r.Run == o.id && r.Kind == messages.KindReview {
		o.out.Review = &r
		return
	}
	o.asked[r.Run] = r
	delete(o.told, r.Run)
}

// stand handles the states of runs without any record so far.
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

// rests reports the silence and open questions to the handlers, and returns whether
// only a person can make the run continue, so that watching ends.
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
	page, err := s.Lineage.Page(ctx, "", client.TailEnd, 1)
	return page.Next, err
}
