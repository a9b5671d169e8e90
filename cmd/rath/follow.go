package main

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// watching says what to do with what is heard of a run. All functions are
// called from one goroutine; nil ones are left out.
type watching struct {
	record func(lineage.Record)  // of the run's tree, in the order of the stream
	delta  func(messages.Delta)  // provisional pieces of model output
	idle   func(d time.Duration) // nothing came for so long
	// person is told once of each run of the tree that waits for a person, and
	// goes on waiting: the record is of kind Waiting or Review.
	person func(lineage.Record)
	// held is told once that the run's task waits for room, and goes on waiting.
	held func(lineage.Record)
	// follower watches since before the run was submitted; nil follows it now.
	follower *client.Follower
}

// watched is how watching a run ended.
type watched struct {
	result *messages.Result // nil for a run that did not end
	review *lineage.Record  // what a person has to decide about the run itself
	// asked is what runs of the tree wait for, where nobody can answer while this
	// process holds the store.
	asked []lineage.Record
	// stands is whether no node works here, so that nothing more comes.
	stands bool
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
	// askedAgain is when it asks again after a question that nobody answered.
	askedAgain = 5 * time.Second
)

// watcher is the state of watching one run.
type watcher struct {
	s    *system
	w    watching
	id   run.ID
	root session.ID // of the tree; "" until it is known

	out   watched
	ended bool            // the record of the run's end came
	known map[run.ID]bool // runs that records came of
	asked map[run.ID]lineage.Record
	told  map[run.ID]bool // what somebody was told of
	last  time.Time       // when something came
}

// heard is what comes of a run from the servers.
type heard struct {
	records chan lineage.Record
	deltas  chan messages.Delta
	results chan messages.Result
	held    chan lineage.Record
}

// watch follows a run until it ended or a person has to decide. root is the
// tree of its session; "" finds out, from the lineage after a sequence on.
func (s *system) watch(ctx context.Context, id run.ID, root session.ID, after uint64, w watching) (watched, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel(nil)
	if w.follower == nil {
		var err error
		if w.follower, err = s.Follow(ctx, id); err != nil {
			return watched{}, err
		}
	}
	o := &watcher{
		s: s, w: w, id: id, root: root, last: time.Now(),
		known: map[run.ID]bool{}, asked: map[run.ID]lineage.Record{}, told: map[run.ID]bool{},
	}
	h := heard{
		records: make(chan lineage.Record), deltas: make(chan messages.Delta, 256),
		results: make(chan messages.Result, 1), held: make(chan lineage.Record, 1),
	}
	for _, listen := range []func() error{
		func() error { return h.tail(ctx, s.Tail(ctx, string(root), after)) },
		func() error { return h.follow(ctx, w.follower.All(ctx), w.held != nil) },
	} {
		group.Go(func() {
			if err := listen(); err != nil {
				cancel(err)
			}
		})
	}
	var failed <-chan error
	if s.node != nil {
		failed = s.node.Failed()
	}
	tick := time.NewTicker(idleEvery)
	defer tick.Stop()
	var patience <-chan time.Time
	standing := make(chan []lineage.Record, 1)
	look := time.After(askedAfter)
	for {
		select {
		case r := <-h.records:
			o.record(r)
		case r := <-h.held:
			w.held(r)
		case d := <-h.deltas:
			o.last = time.Now()
			if w.delta != nil {
				w.delta(d)
			}
		case r := <-h.results:
			o.out.result = &r
			patience = time.After(lastRecords)
			if r.Attempt == 0 && o.root == "" {
				return o.out, nil // refused before anything was recorded
			}
		case <-patience:
			return o.out, nil
		case <-look:
			if len(o.known) > 0 {
				break
			}
			group.Go(func() {
				all, err := s.standing(ctx, id)
				if err != nil {
					all = nil // asked again
				}
				standing <- all
			})
		case all := <-standing:
			if len(all) == 0 {
				look = time.After(askedAgain)
			}
			o.stand(all)
		case <-tick.C:
			if o.rests() {
				return o.out, nil
			}
		case err := <-failed:
			return o.out, err
		case to := <-s.moved:
			return o.out, s.elsewhere(to, "trace -f "+string(id))
		case <-ctx.Done():
			err := context.Cause(ctx)
			if errors.Is(err, context.Canceled) {
				err = errInterrupted
			}
			return o.out, err
		}
		if o.ended && o.out.result != nil {
			return o.out, nil
		}
	}
}

// tail passes records on until they end.
func (h *heard) tail(ctx context.Context, records iter.Seq2[messages.LineageRecord, error]) error {
	for r, err := range records {
		if err != nil {
			return err
		}
		select {
		case h.records <- r.Record:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// follow passes on what a run publishes until it ended; that its task waits for
// room is passed on once, if that is asked for.
func (h *heard) follow(ctx context.Context, updates iter.Seq2[client.Update, error], held bool) error {
	for u, err := range updates {
		switch {
		case err != nil:
			return err
		case u.Result != nil:
			h.results <- *u.Result
		case u.Event != nil && u.Event.Kind == messages.KindHeld && held:
			held = false
			h.held <- *u.Event
		case u.Delta != nil:
			select {
			case h.deltas <- *u.Delta:
			case <-ctx.Done():
				return nil
			}
		}
	}
	return nil
}

// record takes a record of the run's tree, and none of another one.
func (o *watcher) record(r lineage.Record) {
	o.last = time.Now()
	if o.root == "" && r.Run == o.id {
		o.root = r.Root
	}
	if r.Root != o.root {
		return
	}
	if o.w.record != nil {
		o.w.record(r)
	}
	o.known[r.Run] = true
	if r.Home != "" {
		return // of the run in another session than its own
	}
	switch r.Kind {
	case lineage.Waiting:
		if r.Asks() != "" {
			o.ask(r)
		}
	case lineage.Review:
		o.ask(r)
	case lineage.Claimed, lineage.Ended, lineage.Answered, lineage.Resolved:
		delete(o.asked, r.Run)
		if r.Run == o.id {
			o.out.review = nil
			o.ended = r.Kind == lineage.Ended
		}
	}
}

// ask takes a question to a person.
func (o *watcher) ask(r lineage.Record) {
	if r.Run == o.id && r.Kind == lineage.Review {
		o.out.review = &r
		return
	}
	o.asked[r.Run] = r
	delete(o.told, r.Run)
}

// stand takes how runs stand of which no record came.
func (o *watcher) stand(all []lineage.Record) {
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
	if o.w.idle != nil {
		o.w.idle(silence)
	}
	if o.out.result != nil {
		return false
	}
	quiet := silence > 3*idleEvery
	if o.out.review != nil && quiet {
		return true
	}
	asking := slices.Sorted(maps.Keys(o.asked))
	if o.s.own() {
		if silence <= askedAfter {
			return false
		}
		if len(asking) == 0 {
			o.out.stands = o.s.alone && o.known[o.id]
			return o.out.stands
		}
		for _, who := range asking {
			o.out.asked = append(o.out.asked, o.asked[who])
		}
		return true
	}
	if o.w.person != nil && quiet {
		for _, who := range asking {
			if !o.told[who] {
				o.told[who] = true
				o.w.person(o.asked[who])
			}
		}
	}
	return false
}

// newest returns the last sequence of the lineage.
func (s *system) newest(ctx context.Context) (uint64, error) {
	page, err := s.Lineage(ctx, "", 1<<62, 1)
	return page.Last, err
}

// storyOf makes the watching of a run that tells its story.
func (a *app) storyOf(ctx context.Context, t *view.Timeline, note func(string)) watching {
	var step run.Path
	var text string
	return watching{
		record: func(r lineage.Record) {
			t.Add(ctx, r)
			if r.Kind == lineage.Model && r.Step == step || r.Kind == lineage.Ended {
				text = ""
				note("")
			}
		},
		delta: func(d messages.Delta) {
			if d.Step != step {
				step, text = d.Step, ""
			}
			text += d.Reasoning + d.Text
			if d.Call != nil {
				text += d.Call.Name + d.Call.Args
			}
			text = text[max(len(text)-liveText, 0):]
			who := term.Line(cmp.Or(d.Agent, "the model"), 24)
			room := max(a.err.Width()-term.Width(who)-10, 10)
			note("    " + who + "  " + endOf(term.Line(text, liveText), room))
		},
		idle: func(d time.Duration) {
			if d > 5*idleEvery {
				t.Release(ctx)
			}
		},
	}
}

// liveText is how many bytes of what a model is writing are kept to be shown.
const liveText = 400

// endOf returns the end of a text that takes at most width columns.
func endOf(s string, width int) string {
	for i := range s {
		if term.Width(s[i:]) <= width {
			return s[i:]
		}
	}
	return ""
}
