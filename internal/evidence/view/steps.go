package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// StepQuery selects steps of a run by number and other properties. Numbers count all
// steps. The zero value selects all.
type StepQuery struct {
	From, To int // numbers, from 1; 0 is the first or the last one
	Last     int // maximum number of selected steps, from the end; 0 is all
	Agent    string
	Tool     string
	Errors   bool // only failed steps
}

// ParseRange reads "20..40", "20..", "..40" or "20" into the query.
func (q *StepQuery) ParseRange(text string) error {
	from, to, ok := strings.Cut(text, "..")
	if !ok {
		to = from
	}
	var err error
	read := func(s string) (n int) {
		if s == "" && ok || err != nil {
			return 0
		}
		if n, err = strconv.Atoi(s); err == nil && n < 1 {
			err = strconv.ErrRange
		}
		return n
	}
	q.From, q.To = read(from), read(to)
	if err != nil || q.To > 0 && q.From > q.To {
		return fmt.Errorf("steps %q: want a range of numbers from 1, such as 20..40, 20.., ..40 or 20", text)
	}
	return nil
}

// Step is one step of a run, or of one of its branches.
type Step struct {
	N       int           `json:"n"`
	Session session.ID    `json:"session"`
	Run     run.ID        `json:"run"`
	Step    run.Path      `json:"step"`
	Kind    messages.Kind `json:"kind"`
	Agent   string        `json:"agent,omitempty"`
	Model   string        `json:"model,omitempty"`
	Tool    string        `json:"tool,omitempty"`
	Did     string        `json:"did"`
	Failed  bool          `json:"failed,omitempty"`
	Code    run.Code      `json:"code,omitempty"`
	Elapsed int64         `json:"elapsed_ms"`
	Usage   session.Usage `json:"usage,omitzero"`
	Time    time.Time     `json:"time"`
}

// Choose numbers the steps of a run and returns the selected ones.
func (q *StepQuery) Choose(all []messages.Record) []Step {
	out := []Step{}
	for i := range all {
		if s, ok := q.Takes(i+1, &all[i]); ok {
			out = append(out, s)
		}
	}
	if q.Last > 0 && len(out) > q.Last {
		out = out[len(out)-q.Last:]
	}
	return out
}

// Takes returns the step with a number, and reports whether the query selects it
// regardless of Last.
func (q *StepQuery) Takes(n int, r *messages.Record) (Step, bool) {
	if n < q.From || q.To > 0 && n > q.To || q.Agent != "" && r.Agent != q.Agent || q.Tool != "" && r.Tool != q.Tool || q.Errors && !r.Failed() {
		return Step{}, false
	}
	s := Step{
		N: n, Session: r.Session, Run: r.Run, Step: r.Step, Kind: r.Kind, Agent: r.Agent, Model: r.Model, Tool: r.Tool, Did: r.Action(),
		Failed: r.Failed(), Code: r.Code, Elapsed: r.Elapsed, Time: r.When(),
	}
	switch r.Kind {
	case messages.KindGathered, messages.KindAdopted, messages.KindMerged: // the sum of the usage of branches
	default:
		s.Usage = r.Usage
	}
	return s, true
}

// StepLine returns a step on a line of its own, for growing lists.
func StepLine(w *term.Writer, s *Step, name func(session.ID) string) string {
	took := ""
	if s.Elapsed > 0 {
		took = Took(time.Duration(s.Elapsed) * time.Millisecond)
	}
	head := fmt.Sprintf("%4d  %-8s  %-8s  %-12s  %6s  ", s.N, term.Line(name(s.Session), 8), term.Line(string(s.Step), 8), term.Line(cmp.Or(s.Agent, "workflow"), 12), took)
	text := didLine(s.Did, max(min(w.Width(), 100)-term.Width(head), 20))
	if s.Failed {
		text = w.Paint(term.Red, text)
	}
	return head + text
}

// WriteSteps writes a table of steps, as wide as the window, or 100 columns without one.
func WriteSteps(w *term.Writer, steps []Step, name func(session.ID) string) {
	headers := []string{"N", "SESSION", "STEP", "BY", "TOOK", "TOKENS", ""}
	rows := make([][]string, len(steps))
	wide := make([]int, len(headers)-1)
	for i := range steps {
		s := &steps[i]
		took, tokens := "", ""
		if s.Elapsed > 0 {
			took = Took(time.Duration(s.Elapsed) * time.Millisecond)
		}
		if n := s.Usage.Tokens(); n > 0 {
			tokens = excerpt.Thousands(n)
		}
		rows[i] = []string{fmt.Sprint(s.N), term.Line(name(s.Session), 12), term.Line(string(s.Step), 14), term.Line(cmp.Or(s.Agent, "workflow"), 14), took, tokens}
		for c, text := range rows[i] {
			wide[c] = max(wide[c], term.Width(text), term.Width(headers[c]))
		}
	}
	room := min(w.Width(), 100)
	for _, n := range wide {
		room -= n + 2
	}
	for i := range steps {
		text := didLine(steps[i].Did, max(room, 20))
		if steps[i].Failed {
			text = w.Paint(term.Red, text)
		}
		rows[i] = append(rows[i], text)
	}
	w.Rows(headers, rows)
}

// Spending is the time, the tokens and the cost of a run by agent, model and tool.
type Spending struct {
	Run     run.ID          `json:"run"`
	Elapsed time.Duration   `json:"elapsed_ns"` // from its submission to its end, or until now
	Waited  time.Duration   `json:"waited_ns"`  // for users, timers and branches
	Usage   session.Usage   `json:"usage"`
	Calls   []lineage.Spent `json:"calls"`
}

// SpendingOf returns the spending of a run and its branches in the graph.
func SpendingOf(g *lineage.Graph, t session.Tenant, id run.ID, now time.Time) (Spending, error) {
	r, err := g.Run(t, id)
	if err != nil {
		return Spending{}, err
	}
	out := Spending{Run: id, Waited: g.WaitedFor(t, id), Calls: append([]lineage.Spent{}, g.SpentOn(t, id)...)}
	for _, c := range out.Calls {
		out.Usage = out.Usage.Add(c.Usage)
	}
	from, to := r.Submitted, r.Ended
	if from.IsZero() {
		from = r.Started
	}
	if to.IsZero() {
		to = now
	}
	if !from.IsZero() {
		out.Elapsed = max(to.Sub(from), 0)
	}
	return out, nil
}

// WriteSpending writes the table.
func WriteSpending(w *term.Writer, s *Spending) {
	total := "took " + Took(s.Elapsed)
	if s.Waited > 0 {
		total += ", " + Took(s.Waited) + " of it waiting"
	}
	total += "; " + Counted(s.Usage.Tokens(), "token")
	if rate := lineage.HitRate(s.Usage); rate != "" {
		total += ", " + rate + " of input cached"
	}
	source := lineage.CostText(s.Calls)
	if s.Usage.MicroUSD > 0 {
		total += ", " + fmt.Sprintf("%d.%06d USD", s.Usage.MicroUSD/1_000_000, s.Usage.MicroUSD%1_000_000)
		if source != "" {
			total += " (" + source + ")"
		}
	} else if source != "" {
		total += ", " + source
	} else if s.Usage.Tokens() > 0 {
		total += ", no price stated"
	}
	w.Println(total)
	if len(s.Calls) == 0 {
		return
	}
	rows := make([][]string, len(s.Calls))
	number := func(n int64) string {
		if n == 0 {
			return ""
		}
		return excerpt.Thousands(n)
	}
	headers := []string{"AGENT", "MODEL OR TOOL", "CALLS", "FAILED", "TIME", "IN", "OUT", ""}
	for i := range s.Calls {
		c := &s.Calls[i]
		price := ""
		if c.Usage.MicroUSD > 0 {
			price, headers[7] = fmt.Sprintf("%d.%06d", c.Usage.MicroUSD/1_000_000, c.Usage.MicroUSD%1_000_000), "USD"
		}
		rows[i] = []string{
			term.Line(cmp.Or(c.Agent, "workflow"), 14), term.Line(c.On(), 20), excerpt.Thousands(c.Calls), number(c.Failed),
			Took(c.Elapsed), number(c.Usage.Input), number(c.Usage.Output), price,
		}
	}
	if lineage.HitRate(s.Usage) != "" {
		headers = slices.Insert(headers, 6, "CACHED")
		for i := range rows {
			rows[i] = slices.Insert(rows[i], 6, lineage.HitRate(s.Calls[i].Usage))
		}
	}
	w.Rows(headers, rows)
}
