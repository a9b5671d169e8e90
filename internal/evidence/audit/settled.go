package audit

import "fmt"

// partKey identifies a usage report of a part of a run: the log of the part, its run, and
// the number of the report.
type partKey struct {
	part key
	run  string
	n    uint64
}

// partMark is a report as recorded in the home of a run.
type partMark struct {
	log   *log
	seq   uint64
	key   partKey
	spent spending
}

// settled checks a report of usage of a fork or a branch that its run has not counted yet.
func (f *folding) settled(_ *event, d settledData) {
	r, g := f.here(d.Run)
	f.a.check(Budgets, r.home, f.says(d.Run, "run.settled in the home of the run", "it elsewhere"))
	from := key{f.l.tenant, d.Part.From}
	before := d.Part.Counted
	if known, ok := g.parts[d.Part.From]; ok && d.Part.N > 0 {
		f.a.check(Budgets, d.Part.N > known.N, f.says(d.Run, fmt.Sprintf("a report of %s above number %d", d.Part.From, known.N), fmt.Sprintf("number %d", d.Part.N)))
		before = known.Spent
	}
	if d.Part.N > 0 {
		if g.parts == nil {
			g.parts = map[string]partData{}
		}
		g.parts[d.Part.From] = d.Part
	}
	owner := d.Run // of a fork; a branch is a run of its own
	if f.a.fanouts[from] != nil {
		owner = d.Part.From
	}
	f.a.parts = append(f.a.parts, partMark{f.l, f.c.seq, partKey{from, owner, d.Part.N}, d.Part.Spent})
	e := g.end
	if e == nil {
		f.a.check(Budgets, d.N == 0, f.says(d.Run, "run.settled without a number before the end of the run", fmt.Sprintf("number %d", d.N)))
		return
	}
	f.a.check(Budgets, d.N == e.settled+1, f.says(d.Run, fmt.Sprintf("run.settled with number %d", e.settled+1), fmt.Sprintf("number %d", d.N)))
	want := e.total.plus(d.Part.Spent)
	f.a.check(Budgets, d.Total.plus(before) == want, f.says(d.Run, fmt.Sprintf("a total of %+v with what was counted before, %+v", want, before), fmt.Sprintf("%+v", d.Total)))
	e.settled, e.total = d.N, d.Total
	if g.branch != nil {
		end := spending{e.lost, e.steps, e.usage}
		f.a.check(Budgets, d.Parent != nil && d.Told == end, f.says(d.Run, fmt.Sprintf("the parent run to be told that the end said %+v", end), fmt.Sprintf("%+v", d.Told)))
		f.a.partEnds[partKey{f.l.key, d.Run, d.N}] = spending{Steps: d.Total.Steps, Usage: d.Total.Usage}
	}
}

// finishParts compares the recorded usage of parts of runs with the logs of the parts.
func (a *audit) finishParts() {
	for _, m := range a.parts {
		want, ok := a.partEnds[m.key]
		if g := a.runs[m.key.part]; m.key.n == 0 && g != nil && g.end != nil {
			want, ok = spending{Steps: g.end.steps, Usage: g.end.usage}, true
		}
		if a.incomplete(m.log) || !ok && (a.o.Open || a.logs[m.key.part] == nil || a.incomplete(a.logs[m.key.part])) {
			continue
		}
		a.check(Budgets, ok && want == m.spent, func() Violation {
			return m.log.says(m.seq, m.key.run, fmt.Sprintf("%s to have used %+v, as its log says", m.key.part.id, want), fmt.Sprintf("%+v", m.spent))
		})
	}
}
