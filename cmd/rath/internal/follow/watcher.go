package follow

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// watcher is the state of watching one run.
type watcher struct {
	s    *app.System
	w    Handlers
	id   run.ID
	root session.ID // of the tree; "" until it is known

	out   Outcome
	ended bool            // the record of the run's end came
	known map[run.ID]bool // runs that records came of
	asked map[run.ID]lineage.Record
	told  map[run.ID]bool // whose question Person got
	last  time.Time       // when something came
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
	if o.w.Record != nil {
		o.w.Record(r)
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
			o.out.Review = nil
			o.ended = r.Kind == lineage.Ended
		}
	}
}

// ask takes a question to a person.
func (o *watcher) ask(r lineage.Record) {
	if r.Run == o.id && r.Kind == lineage.Review {
		o.out.Review = &r
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

// Newest returns the last sequence of the lineage.
func Newest(ctx context.Context, s *app.System) (uint64, error) {
	page, err := s.Lineage(ctx, "", 1<<62, 1)
	return page.Last, err
}
