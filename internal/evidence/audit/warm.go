package audit

import (
	"reflect"
	"slices"
)

// held is a warm-first fan-out: all branches except the first wait until a model has
// answered the first, or until the first waits itself or has ended.
type held struct {
	parent *runState
	first  key
	said   fanoutData
	spread bool
	log    *log
	seq    uint64 // of the commit that releases the other branches
	ended  bool   // the report of the first branch came before
}

// warmTold is a run's event that a model has answered it, or that it waits.
type warmTold struct {
	log    *log
	seq    uint64
	run    *runState
	parent parentData
}

// holds records a fan-out of which only the first branch may begin.
func (f *folding) holds(d *fanoutData, r *logRun) *held {
	f.a.check(BranchResults, !d.Warm || len(d.Branches) > 1, f.says(d.Run, "branches that wait for the first one", "a warm run.fanout without"))
	if !d.Warm || len(d.Branches) < 2 {
		return nil
	}
	h := &held{parent: f.a.run(f.l, d.Run), first: key{f.l.tenant, d.Branches[0].Session}, said: *d}
	if r.held == nil {
		r.held = map[string]*held{}
	}
	r.held[d.Path] = h
	return h
}

func (f *folding) spread(_ *event, d fanoutData) {
	r, _ := f.here(d.Run)
	if !f.lives(d.Run, r, runSpread) {
		return
	}
	h := r.held[d.Path]
	f.a.check(BranchResults, h != nil && reflect.DeepEqual(h.said, d), f.says(d.Run, "run.spread to repeat a warm run.fanout at step "+d.Path, "another one, or none"))
	if h == nil {
		return
	}
	f.a.check(BranchResults, !h.spread, f.says(d.Run, "the branches of step "+d.Path+" to be let begin once", "run.spread again"))
	waits := r.state == "waiting" && slices.ContainsFunc(r.suspended.For, func(w wait) bool { return w.Path == d.Path+".gather" && !w.came(r.inbox) })
	f.a.check(Waits, waits, f.says(d.Run, "run.spread only while the branches of step "+d.Path+" are waited for", "it while the run is "+r.state+" or the join is decided"))
	if h.spread {
		return
	}
	h.spread, h.log, h.seq = true, f.l, f.c.seq
	h.ended = slices.ContainsFunc(r.inbox, func(v receivedData) bool { return v.Branch != nil && v.Branch.Link.Session == h.first.id })
	f.a.spreads = append(f.a.spreads, h)
}

func (f *folding) warmed(e *event, d warmedData) {
	r, g := f.here(d.Run)
	if !f.lives(d.Run, r, runWarmed) {
		return
	}
	waits := slices.ContainsFunc(f.c.events, func(o event) bool {
		v, ok := read[waitingData](o.data)
		return (o.kind == runWaiting || o.kind == runReview) && ok && v.Run == d.Run
	})
	answered := e.batch != "" && slices.ContainsFunc(f.c.events, func(o event) bool {
		if o.kind != stepDone || o.batch != e.batch {
			return false
		}
		v, ok := read[doneData](o.data)
		return ok && v.Code == "" && (v.Kind == "model" || v.Kind == "compress" || v.Kind == "selection")
	})
	f.a.check(BranchResults, answered || waits, f.says(d.Run, "run.warmed in the batch of a model's answer, or with run.waiting or run.review", "it in batch "+e.batch))
	g.warmed = true
	f.a.warm = append(f.a.warm, warmTold{f.l, f.c.seq, g, d.Parent})
}

// finishSpreads checks that waiting branches began only after run.warmed in the first
// branch's log or the first branch's report, and that no other branch has run.warmed.
func (a *audit) finishSpreads() {
	for _, t := range a.warm {
		b := a.fanouts[t.run.key]
		if b == nil && a.o.Open {
			continue
		}
		a.check(BranchResults, b != nil && b.warm && t.parent == (parentData{b.path + ".gather", b.parent.id, b.log.id}), func() Violation {
			return t.log.says(t.seq, t.run.id, "run.warmed of the first branch of a warm run.fanout, for the run that opened it", "it of "+t.run.id+" for "+t.parent.Run)
		})
	}
	if a.o.Open {
		return // the events of the branches may be in logs that were read earlier
	}
	for _, h := range a.spreads {
		g := a.runs[h.first]
		a.check(BranchResults, h.ended || g != nil && g.warmed, func() Violation {
			return h.log.says(h.seq, h.parent.id, "run.warmed of branch "+h.first.id+", or its report before", "neither")
		})
	}
	for k, b := range a.fanouts {
		g := a.runs[k]
		a.check(BranchResults, b.held == nil || b.held.spread || g == nil || g.home == nil, func() Violation {
			return g.home.says(1, k.id, "no branch but the first before run.spread of step "+b.path, "a log of branch "+b.name)
		})
	}
}
