package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Top is the status of a fleet for a tenant, between two readings.
type Top struct {
	At     int64  `json:"at_ms"`
	OverMS int64  `json:"over_ms"` // from the first reading to the second
	Tenant string `json:"tenant"`
	Rates  Rates  `json:"rates"`
	// Runs counts the open runs by state; More reports that there are more than the
	// count includes. Untaken is the number of tasks that no node has accepted.
	Runs    map[run.State]int     `json:"runs"`
	More    bool                  `json:"more,omitempty"`
	Untaken uint64                `json:"untaken"`
	Quota   *messages.Quota       `json:"quota,omitempty"` // of the tenant, if it has one
	Pools   []TopPool             `json:"pools"`
	Nodes   []messages.Node       `json:"nodes"`
	Streams []messages.StreamFill `json:"streams"` // that every run needs
	Stuck   []TopStuck            `json:"stuck"`
	// Unasked reports that not all open runs were checked for being stuck.
	Unasked bool `json:"unasked,omitempty"`
}

// Rates are per second.
type Rates struct {
	Runs   float64 `json:"runs"` // ended runs
	Steps  float64 `json:"steps"`
	Tokens float64 `json:"tokens"`
	Errors float64 `json:"errors"` // runs that failed, and steps that ended with an error
}

// TopPool is a pool of nodes, with the runs that wait for its slots.
type TopPool struct {
	Pool     string `json:"pool"`
	Nodes    int    `json:"nodes"` // live nodes
	Slots    int    `json:"slots"`
	Free     int    `json:"free"`
	Queued   int    `json:"queued"`
	OldestMS int64  `json:"oldest_ms,omitempty"` // the longest current wait for a slot
}

// TopStuck is a run that cannot continue by itself, or has made no progress for a while.
type TopStuck struct {
	Run      run.ID    `json:"run"`
	State    run.State `json:"state"`
	Workflow string    `json:"workflow,omitempty"`
	Why      string    `json:"why"` // as in the answer of why
	Since    int64     `json:"since_ms,omitempty"`
	// Retries is set if the run is between two tries of a model call and continues by itself.
	Retries bool `json:"retries,omitempty"`
}

// Counts are the input of rates.
type Counts struct{ Runs, Steps, Tokens, Errors int64 }

// Add counts a record.
func (c *Counts) Add(r *messages.Record) {
	switch r.Kind {
	case messages.KindEnded:
		c.Runs++
		if st := run.State(r.State); st == run.Failed || st == run.TimedOut {
			c.Errors++
		}
	case messages.KindModel, messages.KindTool, messages.KindDid, messages.KindBranched, messages.KindRecalled, messages.KindRemembered, messages.KindCompressed, messages.KindSelected,
		messages.KindFannedOut, messages.KindGathered, messages.KindAwaited:
		c.Steps++
		if r.Kind == messages.KindModel {
			c.Tokens += r.Usage.Tokens()
		}
		if r.Code != "" || r.Failure {
			c.Errors++
		}
	}
}

// Per returns the counts as rates.
func (c *Counts) Per(d time.Duration) Rates {
	s := max(d.Seconds(), 1e-3)
	return Rates{float64(c.Runs) / s, float64(c.Steps) / s, float64(c.Tokens) / s, float64(c.Errors) / s}
}

// StuckAfter is the time after which a step without progress counts as stuck.
const StuckAfter = 30 * time.Second

// Stuck returns the reason why a run makes no progress, as in WriteLive; "" for a run that
// makes progress, or that waits at its own request.
func Stuck(l *messages.Live) string {
	now := time.UnixMilli(l.At)
	rests := restsOn(&LiveRun{Live: l}, now)
	first := ""
	if len(rests) > 0 {
		first = rests[0]
	}
	switch {
	case l.Quarantine != "", l.Silent, l.Untaken, l.Review != nil:
		return first
	case l.Queue != nil && l.Queue.Sent == "" && (l.Queue.Pool == "" || l.Queue.Nodes == 0):
		return first
	}
	for i := range l.Steps {
		s := &l.Steps[i]
		if s.Try > 1 || s.Error != "" || now.Sub(time.UnixMilli(s.At)) >= StuckAfter {
			return StepText(s) + ": " + Doing(s, now)
		}
	}
	if l.State == run.Running && len(l.Steps) == 0 && l.Since > 0 && now.Sub(time.UnixMilli(l.Since)) >= StuckAfter {
		return first
	}
	return ""
}

// Retries reports whether a run is between two tries of a model call, so that it continues
// by itself.
func Retries(l *messages.Live) bool {
	return slices.ContainsFunc(l.Steps, func(s messages.LiveStep) bool { return s.Doing == "pauses" })
}

// PoolsOf returns the pools of live nodes, and the pools whose workflows wait.
func PoolsOf(nodes []messages.Node, workflows []messages.Workflow, open []messages.RunInfo, now time.Time) []TopPool {
	pools := map[string]*TopPool{}
	of := func(name string) *TopPool {
		if pools[name] == nil {
			pools[name] = &TopPool{Pool: name}
		}
		return pools[name]
	}
	for _, n := range nodes {
		if n.Dead || n.Silent > 0 {
			continue
		}
		for _, name := range n.Pools {
			p := of(name)
			p.Nodes++
			p.Slots += n.Slots
			p.Free += n.Free
		}
	}
	offers := map[string]string{}
	for _, w := range workflows {
		_, own := messages.PoolOf(w.Pool)
		if offers[w.Name] == "" || own && pools[w.Pool] != nil { // workflows of the tenant's nodes take precedence
			offers[w.Name] = w.Pool
		}
	}
	for i := range open {
		r := &open[i]
		if r.State != run.Queued || r.Behind != "" || r.Due > now.UnixMilli() { // it does not wait for a slot
			continue
		}
		p := of(cmp.Or(offers[r.Workflow], "-"))
		p.Queued++
		p.OldestMS = max(p.OldestMS, now.UnixMilli()-max(cmp.Or(r.Queued, r.Submitted), r.Due))
	}
	out := make([]TopPool, 0, len(pools))
	for _, p := range pools {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b TopPool) int { return cmp.Compare(a.Pool, b.Pool) })
	return out
}

// topStuck is the maximum number of stuck runs, or groups of stuck runs, on a page.
const topStuck = 10

// WriteTop writes a page.
func WriteTop(w *term.Writer, t *Top) {
	line := func(name, text string) {
		for i, part := range term.Wrap(text, max(w.Width()-9, 20)) {
			if i > 0 {
				name = ""
			}
			w.Println(w.Dim(term.Pad(name, 9)) + part)
		}
	}
	line("tenant", fmt.Sprintf("%s at %s", t.Tenant, Clock(time.UnixMilli(t.At))))
	line("rates", fmt.Sprintf("over %s: %s runs/s, %s steps/s, %s tokens/s, %s errors/s", Took(time.Duration(t.OverMS)*time.Millisecond), rate(t.Rates.Runs), rate(t.Rates.Steps), rate(t.Rates.Tokens), rate(t.Rates.Errors)))
	more := ""
	if t.More {
		more = " of the newest"
	}
	line("runs", fmt.Sprintf("%d running, %d queued, %d waiting, %d in review%s; %s untaken",
		t.Runs[run.Running], t.Runs[run.Queued], t.Runs[run.Waiting], t.Runs[run.NeedsReview], more, Counted(int64(t.Untaken), "task")))
	if t.Quota != nil {
		line("quota", QuotaText(t.Quota))
	}
	for _, text := range roomText(t.Streams) {
		line("streams", text)
	}
	var rows [][]string
	least := ""
	if t.More { // older runs may wait as well
		least = "+"
	}
	for _, p := range t.Pools {
		queued, oldest := "0", "-"
		if p.Queued > 0 {
			queued, oldest = fmt.Sprint(p.Queued)+least, Took(time.Duration(p.OldestMS)*time.Millisecond)+least
		}
		rows = append(rows, []string{p.Pool, fmt.Sprint(p.Nodes), fmt.Sprintf("%d/%d", p.Free, p.Slots), queued, oldest})
	}
	w.Println()
	w.Rows([]string{"POOL", "NODES", "FREE", "QUEUED", "OLDEST"}, rows)
	rows = nil
	for _, n := range t.Nodes {
		pool := "-"
		if len(n.Pools) > 0 {
			pool = Names(n.Pools)
		}
		rows = append(rows, []string{term.Line(n.Name, 24), n.Incarnation, pool, NodeState(n), FreeSlots(n), Age(time.UnixMilli(t.At), time.UnixMilli(n.Started))})
	}
	w.Println()
	w.Rows([]string{"NODE", "INCARNATION", "POOL", "STATE", "FREE", "AGE"}, rows)
	w.Println()
	if len(t.Stuck) == 0 {
		line("stuck", "no run")
		return
	}
	retrying := 0
	for i := range t.Stuck {
		if t.Stuck[i].Retries {
			retrying++
		}
	}
	text := Counted(int64(len(t.Stuck)-retrying), "run") + " stuck"
	if retrying > 0 {
		text += ", " + Counted(int64(retrying), "run") + " between two tries of a model"
	}
	if t.Unasked {
		text += ", and maybe more: not all were asked"
	}
	w.Println(w.Paint(term.Yellow, text))
	groups := alike(t.Stuck)
	for _, g := range groups[:min(len(groups), topStuck)] {
		s, others := g[0], ""
		if n := len(g) - 1; n > 0 {
			others = " and " + Counted(int64(n), "other")
		}
		line("run", string(s.Run)+others+" of "+cmp.Or(s.Workflow, "no workflow")+", "+string(s.State))
		line("", s.Why)
	}
}

// alike groups the stuck runs by workflow, state and reason.
func alike(stuck []TopStuck) [][]TopStuck {
	type reason struct {
		workflow, why string
		state         run.State
	}
	at := map[reason]int{}
	var out [][]TopStuck
	for _, s := range stuck {
		k := reason{s.Workflow, s.Why, s.State}
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k], out = i, append(out, nil)
		}
		out[i] = append(out[i], s)
	}
	return out
}

// rate formats a rate with its significant digits.
func rate(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 10:
		return fmt.Sprintf("%.1f", x)
	}
	return excerpt.Thousands(int64(x + 0.5))
}

// roomText lists the streams that do not accept all messages or, if all do, the fullest
// stream.
func roomText(streams []messages.StreamFill) []string {
	var out []string
	var most messages.StreamFill
	for _, f := range streams {
		if f.Room != messages.RoomAll {
			out = append(out, f.Stream+": "+CapacityText(f))
		}
		if most.Stream == "" || percent(f) > percent(most) {
			most = f
		}
	}
	if len(out) == 0 && most.Stream != "" {
		out = []string{fmt.Sprintf("all have room; the fullest is %s, %.0f %% full", most.Stream, percent(most))}
	}
	return out
}

func percent(f messages.StreamFill) float64 {
	return 100 * float64(f.Bytes) / float64(max(f.MaxBytes, 1))
}
