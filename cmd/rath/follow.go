package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/lineage"
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

// watch follows a run until it ended or a person has to decide. root is the
// tree of its session; "" finds out, from the lineage after a sequence on.
func (s *system) watch(ctx context.Context, id run.ID, root session.ID, after uint64, w watching) (watched, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel(nil)

	records := make(chan messages.LineageRecord)
	updates := make(chan messages.Delta, 256)
	results := make(chan messages.Result, 1)
	held := make(chan lineage.Record, 1)
	group.Go(func() {
		for r, err := range s.Tail(ctx, string(root), after) {
			if err != nil {
				cancel(err)
				return
			}
			select {
			case records <- r:
			case <-ctx.Done():
				return
			}
		}
	})
	follower := w.follower
	if follower == nil {
		var err error
		if follower, err = s.Follow(ctx, id); err != nil {
			return watched{}, err
		}
	}
	group.Go(func() {
		waits := false
		for u, err := range follower.All(ctx) {
			switch {
			case err != nil:
				cancel(err)
				return
			case u.Result != nil:
				results <- *u.Result
			case u.Event != nil && u.Event.Kind == messages.KindHeld && w.held != nil && !waits:
				waits = true
				held <- *u.Event
			case u.Delta != nil:
				select {
				case updates <- *u.Delta:
				case <-ctx.Done():
					return
				}
			}
		}
	})
	var failed <-chan error
	if s.node != nil {
		failed = s.node.Failed()
	}

	tick := time.NewTicker(idleEvery)
	defer tick.Stop()
	heard := time.Now()
	var out watched
	var patience <-chan time.Time
	ended := false
	asked, told := map[run.ID]lineage.Record{}, map[run.ID]bool{}
	ask := func(rec lineage.Record) {
		if rec.Run == id && rec.Kind == lineage.Review {
			out.review = &rec
			return
		}
		asked[rec.Run] = rec
		delete(told, rec.Run)
	}
	known := map[run.ID]bool{} // runs that records came of
	stands := make(chan []lineage.Record, 1)
	look := time.After(askedAfter)
	for {
		select {
		case r := <-records:
			heard = time.Now()
			rec := r.Record
			if root == "" && rec.Run == id {
				root = rec.Root
			}
			if rec.Root != root {
				continue
			}
			if w.record != nil {
				w.record(rec)
			}
			known[rec.Run] = true
			if rec.Home != "" {
				continue // of the run in another session than its own
			}
			switch rec.Kind {
			case lineage.Waiting:
				if asks(&rec) != "" {
					ask(rec)
				}
			case lineage.Review:
				ask(rec)
			case lineage.Claimed, lineage.Ended, lineage.Answered, lineage.Resolved:
				delete(asked, rec.Run)
				if rec.Run == id {
					out.review = nil
					ended = rec.Kind == lineage.Ended
				}
			}
		case e := <-held:
			w.held(e)
		case <-look:
			if len(known) > 0 {
				break
			}
			group.Go(func() {
				all, err := s.standing(ctx, id)
				if err != nil {
					all = nil // asked again
				}
				stands <- all
			})
		case all := <-stands:
			if len(all) == 0 {
				look = time.After(askedAgain)
			}
			for _, rec := range all {
				if root == "" {
					root = rec.Root
				}
				if !known[rec.Run] && rec.Kind != "" {
					ask(rec)
				}
			}
		case d := <-updates:
			heard = time.Now()
			if w.delta != nil {
				w.delta(d)
			}
		case r := <-results:
			out.result = &r
			patience = time.After(lastRecords)
			if r.Attempt == 0 && root == "" {
				return out, nil // refused before anything was recorded
			}
		case <-patience:
			return out, nil
		case <-tick.C:
			if w.idle != nil {
				w.idle(time.Since(heard))
			}
			quiet := out.result == nil && time.Since(heard) > 3*idleEvery
			if out.review != nil && quiet {
				return out, nil
			}
			if w.person != nil && quiet && !s.own() {
				for _, who := range slices.Sorted(maps.Keys(asked)) {
					if !told[who] {
						told[who] = true
						w.person(asked[who])
					}
				}
			}
			if s.own() && len(asked) > 0 && out.result == nil && time.Since(heard) > askedAfter {
				for _, who := range slices.Sorted(maps.Keys(asked)) {
					out.asked = append(out.asked, asked[who])
				}
				return out, nil
			}
		case err := <-failed:
			return out, err
		case <-ctx.Done():
			err := context.Cause(ctx)
			if errors.Is(err, context.Canceled) {
				err = errInterrupted
			}
			return out, err
		}
		if ended && out.result != nil {
			return out, nil
		}
	}
}

// asks returns what somebody outside has to give before a run goes on, "" if
// nothing.
func asks(r *lineage.Record) string {
	for _, w := range r.Waits {
		if w.Kind == run.WaitApproval || w.Kind == run.WaitResponse || w.Kind == run.WaitMessage {
			return w.Kind
		}
	}
	return ""
}

// newest returns the last sequence of the lineage.
func (s *system) newest(ctx context.Context) (uint64, error) {
	page, err := s.Lineage(ctx, "", 1<<62, 1)
	return page.Last, err
}

// storyOf makes the watching of a run that tells its story.
func (a *app) storyOf(ctx context.Context, t *teller, note func(string)) watching {
	var step run.Path
	var text string
	return watching{
		record: func(r lineage.Record) {
			t.add(ctx, r)
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
			who := term.Line(or(d.Agent, "the model"), 24)
			room := max(a.err.Width()-term.Width(who)-10, 10)
			note("    " + who + "  " + endOf(term.Line(text, liveText), room))
		},
		idle: func(d time.Duration) {
			if d > 5*idleEvery {
				t.release(ctx)
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
