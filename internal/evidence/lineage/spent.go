package lineage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Spent is the total usage and time of the calls of one agent to one model or tool.
// Calls of branches overlap, so that the sum of Elapsed may exceed the run's time.
type Spent struct {
	Agent string `json:"agent,omitempty"` // "" is the workflow
	Model string `json:"model,omitempty"` // "" for tool calls, and without an answer
	Tool  string `json:"tool,omitempty"`  // "" for model calls
	// Unrecorded reports that the calls have no steps, because the run ended before they
	// were recorded. Agent, Model and Elapsed are then unknown.
	Unrecorded bool          `json:"unrecorded,omitempty"`
	Calls      int64         `json:"calls"`
	Failed     int64         `json:"failed,omitempty"`
	Elapsed    time.Duration `json:"elapsed_ns"`
	Usage      session.Usage `json:"usage"`
	// Cost are the sources of the cost in Usage, such as "priced 2026-11-01", "stated"
	// and "free".
	Cost []string `json:"cost,omitempty"`
}

// On returns the tool or the model of the calls for display.
func (s *Spent) On() string {
	if s.Unrecorded {
		return "cut by the end"
	}
	return cmp.Or(s.Tool, s.Model, "no answer")
}

// CostText returns the sources of the costs for display; "" if there are none.
func CostText(spent []Spent) string {
	var all []string
	for i := range spent {
		for _, c := range spent[i].Cost {
			if day, ok := strings.CutPrefix(c, "priced "); ok {
				c = "by prices of " + day
			} else if c == "stated" {
				c = "stated by the server"
			}
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	return strings.Join(all, ", ")
}

// HitRate returns the share of the input from providers' prompt caches: "83%", or "" for
// none.
func HitRate(u session.Usage) string {
	if u.CacheRead <= 0 || u.Input <= 0 {
		return ""
	}
	return fmt.Sprintf("%d%%", min(int64(100*float64(u.CacheRead)/float64(u.Input)), 100))
}

// SpentOn returns the usage of the calls of a run and of its branches: by agent in the
// order of their first calls, and for each agent models before tools. Unrecorded calls
// are last.
func (g *Graph) SpentOn(t session.Tenant, id run.ID) []Spent {
	var out []Spent
	type key struct{ agent, model, tool string }
	index := map[key]int{}
	rank := map[string]int{}
	for _, r := range g.StepsOf(t, id) {
		var k key
		switch r.Kind {
		case messages.KindTool:
			k = key{agent: r.Agent, tool: r.Tool}
		case messages.KindModel, messages.KindSelected, messages.KindCompressed:
			k = key{agent: r.Agent, model: r.Model}
		default:
			continue
		}
		n, ok := index[k]
		if !ok {
			n = len(out)
			index[k] = n
			out = append(out, Spent{Agent: k.agent, Model: k.model, Tool: k.tool})
			if _, ok := rank[k.agent]; !ok {
				rank[k.agent] = len(rank)
			}
		}
		s := &out[n]
		s.Calls, s.Elapsed, s.Usage = s.Calls+1, s.Elapsed+time.Duration(r.Elapsed)*time.Millisecond, s.Usage.Add(r.Usage)
		if r.Cost != "" && !slices.Contains(s.Cost, r.Cost) {
			s.Cost = append(s.Cost, r.Cost)
		}
		if r.Failed() {
			s.Failed++
		}
	}
	slices.SortStableFunc(out, func(a, b Spent) int {
		return cmp.Or(cmp.Compare(rank[a.Agent], rank[b.Agent]), cmp.Compare(min(len(a.Tool), 1), min(len(b.Tool), 1)), cmp.Compare(b.Elapsed, a.Elapsed))
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	if u := g.index.unrecorded(t, id); u != (session.Usage{}) {
		out = append(out, Spent{Unrecorded: true, Calls: u.Calls, Usage: u})
	}
	return out
}

// unrecorded returns the usage of calls without a step, from the ends of a run and of
// its branches.
func (g *index) unrecorded(t session.Tenant, id run.ID) (sum session.Usage) {
	for _, id := range g.withBranches(t, id) {
		for key := range g.runs[runKey{t, id}] {
			for _, r := range g.sessions[key].of(id) {
				sum = sum.Add(r.Unrecorded)
			}
		}
	}
	return sum
}

// StepsOf returns the records of the steps of a run and of its branches by time. Records
// of tools have the agents that called them. Steps of one millisecond are in the order of
// their paths.
func (g *Graph) StepsOf(t session.Tenant, id run.ID) []messages.Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []messages.Record
	for _, id := range g.index.withBranches(t, id) {
		for key := range g.index.runs[runKey{t, id}] {
			h := g.index.sessions[key]
			for i, r := range h.of(id) {
				if isStep(r) {
					out = append(out, *h.record(i))
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b messages.Record) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.Run, b.Run), run.ComparePaths(a.Step, b.Step), byTime(a, b))
	})
	asked := callers{}
	for i := range out {
		asked.name(&out[i])
	}
	return out
}

// isStep reports whether a record is the outcome of a step.
func isStep(r *messages.Record) bool { return r.Step != "" && stepDone(r.Kind) && !opens(r.Kind) }

// callers are the agents of model steps.
type callers map[stepID]string

// name sets the agent of a tool call. The caller passes the records in order.
func (c callers) name(r *messages.Record) {
	if r.Kind == messages.KindModel {
		c[stepID{r.Run, r.Step}] = r.Agent
	}
	if r.Kind == messages.KindTool && r.Agent == "" {
		actor := r.Actor()
		if r.Agent = c[stepID{r.Run, r.Step.Parent()}]; r.Agent != "" {
			r.Summary = strings.TrimPrefix(r.Summary, actor+" ")
		}
	}
}

// StepFeed finds the steps of a run and of its branches in a stream of records.
type StepFeed struct {
	runs  map[run.ID]bool
	asked callers
}

// NewStepFeed returns a feed of a run.
func NewStepFeed(id run.ID) *StepFeed {
	return &StepFeed{runs: map[run.ID]bool{id: true}, asked: callers{}}
}

// Add processes the next record of the tree. It returns the record as [Graph.StepsOf]
// does, and reports whether it is the outcome of a step of the run.
func (f *StepFeed) Add(r messages.Record) (messages.Record, bool) {
	if !f.runs[r.Run] {
		return r, false
	}
	if r.Kind == messages.KindFannedOut {
		for _, b := range r.Branches {
			f.runs[run.ID(b.Session)] = true
		}
	}
	f.asked.name(&r)
	return r, isStep(&r)
}

// withBranches returns a run and the runs of its branches and of theirs. A branch is a
// run of its own, with the id of its session.
func (g *index) withBranches(t session.Tenant, id run.ID) []run.ID {
	out := []run.ID{id}
	seen := map[run.ID]bool{id: true}
	for i := 0; i < len(out); i++ {
		for key := range g.runs[runKey{t, out[i]}] {
			for _, r := range g.sessions[key].of(out[i]) {
				if r.Kind != messages.KindFannedOut {
					continue
				}
				for _, b := range r.Branches {
					if id := run.ID(b.Session); !seen[id] {
						seen[id] = true
						out = append(out, id)
					}
				}
			}
		}
	}
	return out
}

// Beside returns the sessions that a run or a branch of it opened and that are not in the
// graph: the roots of other trees, such as a session in which a model takes notes.
func (g *Graph) Beside(t session.Tenant, id run.ID) []session.ID {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []session.ID
	for _, id := range g.index.withBranches(t, id) {
		for key := range g.index.runs[runKey{t, id}] {
			for _, r := range g.index.sessions[key].of(id) {
				if r.Kind != messages.KindBranched {
					continue
				}
				for _, b := range r.Branches {
					if g.index.sessions[session.Key{Tenant: t, ID: b.Session}] == nil && !slices.Contains(out, b.Session) {
						out = append(out, b.Session)
					}
				}
			}
		}
	}
	return out
}

// WaitedFor returns the time that a run waited for users, timers and branches, up to the
// last record of its home.
func (g *Graph) WaitedFor(t session.Tenant, id run.ID) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := runKey{t, id}
	h := g.index.sessions[g.index.home(k)]
	if h == nil {
		return 0
	}
	var sum, since int64
	for _, r := range h.of(id) {
		switch {
		case r.Kind == messages.KindWaiting && since == 0:
			since = r.Time
		case since > 0 && (r.Kind == messages.KindClaimed || r.Kind == messages.KindEnded):
			sum, since = sum+r.Time-since, 0
		}
	}
	return time.Duration(sum) * time.Millisecond
}
