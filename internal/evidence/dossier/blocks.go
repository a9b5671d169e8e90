package dossier

import (
	"cmp"
	"slices"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/session"
)

// Block is a part of the timeline that folds: consecutive steps of one agent, the steps of
// one session, or the branches of one fan-out. Without a Title it is a single step.
type Block struct {
	Step   int    // number of the single step
	Title  string // the agent, "branch try-3", "64 branches"
	Actor  bool   // the Title is an agent's name
	In     int    // number of the session, 0 for several
	Label  string
	Open   bool // not folded
	Blocks []Block

	From, To   int // numbers of its first and last step
	Steps      int
	ModelCalls int
	ToolCalls  int
	Bad        int // steps with an error or without an outcome
	Tokens     int
	Elapsed    int64 // milliseconds, from its first step to its last one
	began      time.Time
	ended      time.Time
}

// Limits of folding. They are part of the layout.
const (
	foldSteps    = 24 // maximum number of steps of an unfolded timeline
	foldTurn     = 3  // minimum number of steps of one agent that fold
	foldBranches = 10 // more branches of one fan-out fold into one block
)

// took returns the time from the first commit to the end.
func (f *Facts) took() time.Duration {
	if len(f.Steps) == 0 {
		return 0
	}
	from, to := f.Submitted, f.Ended
	for i := range f.Steps {
		at := f.Steps[i].Time
		if from.IsZero() || at.Before(from) {
			from = at
		}
		if f.Ended.IsZero() && at.After(to) {
			to = at
		}
	}
	return max(to.Sub(from), 0)
}

// fold groups the steps into blocks: the steps of the home session by agent, the steps of
// each other session below a line of their own at the session's first step.
func (f *Facts) fold() []Block {
	threads := map[session.ID][]int{}
	var order []session.ID
	for i := range f.Steps {
		s := &f.Steps[i]
		if threads[s.Session] == nil {
			order = append(order, s.Session)
		}
		threads[s.Session] = append(threads[s.Session], s.N)
	}
	open := len(f.Steps) <= foldSteps
	branch := map[session.ID]*Branch{}
	siblings := map[int]int{} // number of started branches of a fan-out, by its step
	for i := range f.Branches {
		b := &f.Branches[i]
		branch[b.Session] = b
		if threads[b.Session] != nil {
			siblings[b.Step]++
		}
	}
	var out []Block
	many := map[int]int{} // index in out of the block of a folded fan-out, by its step
	for _, id := range order {
		blocks := f.turns(threads[id], open)
		if id == f.Home || len(order) == 1 {
			out = append(out, blocks...)
			continue
		}
		first := f.Steps[threads[id][0]-1]
		b := Block{Title: "session", In: first.In, Label: first.Label, Open: open, Blocks: blocks}
		of := branch[id]
		if of != nil {
			b.Title = "branch " + of.Name
		}
		b.sum(f, threads[id])
		if of == nil || siblings[of.Step] <= foldBranches {
			out = append(out, b)
			continue
		}
		at, ok := many[of.Step]
		if !ok {
			at = len(out)
			many[of.Step] = at
			out = append(out, Block{Title: excerpt.Counted(siblings[of.Step], "branch"), From: b.From})
		}
		out[at].Blocks = append(out[at].Blocks, b)
		out[at].add(&b)
	}
	// By first step, so that sessions are between the blocks of the home session.
	slices.SortStableFunc(out, func(a, b Block) int { return cmp.Compare(a.From, b.From) })
	return out
}

// turns folds consecutive steps of one agent in a session.
func (f *Facts) turns(steps []int, open bool) []Block {
	var out []Block
	for i := 0; i < len(steps); {
		agent := f.agentOf(steps[i])
		n := i + 1
		for n < len(steps) && agent != "" && f.agentOf(steps[n]) == agent {
			n++
		}
		if n-i < foldTurn {
			for _, s := range steps[i:n] {
				out = append(out, Block{Step: s, From: s, To: s})
			}
			i = n
			continue
		}
		first := f.Steps[steps[i]-1]
		b := Block{Title: agent, Actor: true, In: first.In, Label: first.Label, Open: open}
		for _, s := range steps[i:n] {
			b.Blocks = append(b.Blocks, Block{Step: s, From: s, To: s})
		}
		b.sum(f, steps[i:n])
		out = append(out, b)
		i = n
	}
	return out
}

// agentOf returns the agent that made a step, or "".
func (f *Facts) agentOf(n int) string {
	s := &f.Steps[n-1]
	switch s.Kind {
	case journal.StepModel, journal.StepTool, journal.StepCompress, "intent":
		if s.Actor != "workflow" {
			return s.Actor
		}
	}
	return ""
}

// sum adds the totals of the steps to a block.
func (b *Block) sum(f *Facts, steps []int) {
	for _, n := range steps {
		s := &f.Steps[n-1]
		one := Block{From: n, To: n, Steps: 1, began: s.Time, ended: s.Time}
		if s.Elapsed > 0 {
			one.began = s.Time.Add(-time.Duration(s.Elapsed) * time.Millisecond)
		}
		if s.Kind != journal.StepGather && !s.Late {
			one.Tokens = int(s.Usage.Tokens())
		}
		switch s.Kind {
		case journal.StepModel, journal.StepSelection, journal.StepCompress:
			one.ModelCalls = 1
		case journal.StepTool:
			one.ToolCalls = 1
		}
		if s.Code != "" || s.Open {
			one.Bad = 1
		}
		b.add(&one)
	}
}

func (b *Block) add(o *Block) {
	if b.Steps == 0 || o.From < b.From {
		b.From = o.From
	}
	b.To = max(b.To, o.To)
	b.Steps, b.ModelCalls, b.ToolCalls, b.Bad, b.Tokens = b.Steps+o.Steps, b.ModelCalls+o.ModelCalls, b.ToolCalls+o.ToolCalls, b.Bad+o.Bad, b.Tokens+o.Tokens
	if b.began.IsZero() || o.began.Before(b.began) {
		b.began = o.began
	}
	if o.ended.After(b.ended) {
		b.ended = o.ended
	}
	b.Elapsed = b.ended.Sub(b.began).Milliseconds()
}
