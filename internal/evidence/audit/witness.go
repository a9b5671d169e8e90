package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Execution is a line of a tool witness: one call that began, as the tool itself
// records it outside of the system. Call is the idempotency key that the tool
// received; Run and Step name a step that has none.
type Execution struct {
	Call    string    `json:"call,omitempty"`
	Run     string    `json:"run,omitempty"`
	Step    string    `json:"step,omitempty"`
	Attempt uint64    `json:"attempt"`
	Tool    string    `json:"tool,omitempty"`
	Effect  string    `json:"effect,omitempty"` // if the tool has it: "non_idempotent", …
	Time    time.Time `json:"time,omitzero"`
}

// Request is a line of the model server's request log: one request for a step, as
// the sender named it. Try counts the requests of one attempt, from one.
type Request struct {
	Run     string    `json:"run"`
	Step    string    `json:"step"`
	Attempt uint64    `json:"attempt"`
	Try     uint64    `json:"try,omitempty"`
	Time    time.Time `json:"time,omitzero"`
}

// Told is a line of a client's log: one response of the system.
//
//   - "submit": the task Run was acknowledged.
//   - "commit": commit Seq of Session was seen, with Hash.
//   - "result": Run ended with State, with Session, Seq and Hash of its chain.
//   - "control": Verb for Run, or for Session, was acknowledged; By and Text
//     are from the client's request, Text being the reason of a verb that has one.
type Told struct {
	Op      string    `json:"op"`
	Tenant  string    `json:"tenant,omitempty"` // empty means "default"
	Run     string    `json:"run,omitempty"`
	Session string    `json:"session,omitempty"`
	Seq     uint64    `json:"seq,omitempty"`
	Hash    string    `json:"hash,omitempty"`
	State   string    `json:"state,omitempty"`
	Verb    string    `json:"verb,omitempty"`
	By      string    `json:"by,omitempty"`
	Text    string    `json:"text,omitempty"`
	Time    time.Time `json:"time,omitzero"`
}

// witnesses holds the witness files and the log's records of the same calls.
type witnesses struct {
	calls    map[string]*called // by idempotency key, or run and step
	counted  map[string]bool    // tools that record each execution
	requests map[string]*called // by run and step
	told     []Told
	heard    map[string]int // control facts in the logs
}

// called is one call.
type called struct {
	run, step string
	runs      []execution
	intents   []intentMark
	done      bool
	by        uint64 // attempt that recorded it
	code      string // of an error outcome: the call may not have begun
	log       *log
	commit    uint64
	effect    string
	evidence  []uint64       // attempts of late outcomes without an error
	failed    map[uint64]int // tries, by attempt
}

type execution struct {
	attempt, try uint64
	effect       string
	time         time.Time
}

func readWitnesses(o *Options) (witnesses, error) {
	w := witnesses{calls: map[string]*called{}, counted: map[string]bool{}, requests: map[string]*called{}, heard: map[string]int{}}
	err := errors.Join(
		lines(o.Tools, "tools", func(e Execution) error {
			name := e.Call
			if name == "" {
				name = e.Run + "/" + e.Step
			}
			if name == "/" || e.Attempt == 0 {
				return errors.New("an execution needs a call, or a run and a step, and its attempt")
			}
			run, step, _ := cutBatch(name)
			c := add(w.calls, name, run, step)
			c.runs = append(c.runs, execution{e.Attempt, 0, e.Effect, e.Time})
			if e.Tool != "" {
				w.counted[e.Tool] = true
			}
			return nil
		}),
		lines(o.Models, "models", func(r Request) error {
			if r.Run == "" || r.Step == "" || r.Attempt == 0 {
				return errors.New("a request needs run, step and attempt")
			}
			c := add(w.requests, r.Run+"/"+r.Step, r.Run, r.Step)
			c.runs = append(c.runs, execution{r.Attempt, max(r.Try, 1), "", r.Time})
			return nil
		}),
		lines(o.Clients, "clients", func(t Told) error {
			if !slices.Contains([]string{"submit", "commit", "result", "control"}, t.Op) {
				return fmt.Errorf("op %q: want submit, commit, result or control", t.Op)
			}
			if t.Tenant == "" {
				t.Tenant = "default"
			}
			w.told = append(w.told, t)
			return nil
		}),
	)
	return w, err
}

func add(m map[string]*called, name, run, step string) *called {
	c := m[name]
	if c == nil {
		c = &called{run: run, step: step}
		m[name] = c
	}
	return c
}

// lines reads JSON lines.
func lines[T any](files []io.Reader, what string, take func(T) error) error {
	for i, f := range files {
		in := bufio.NewReaderSize(f, 64<<10)
		for n := 1; ; n++ {
			line, err := in.ReadString('\n')
			if strings.TrimSpace(line) != "" {
				var v T
				// A process that was killed may have left half a line at the end.
				bad := json.Unmarshal([]byte(line), &v)
				if bad == nil {
					bad = take(v)
				} else if errors.Is(err, io.EOF) {
					bad = nil
				}
				if bad != nil {
					return fmt.Errorf("%w: witness of %s, file %d, line %d: %w", ErrInput, what, i+1, n, bad)
				}
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("audit: witness of %s, file %d: %w", what, i+1, err)
			}
		}
	}
	return nil
}

// named returns the witness of a call, or nil.
func (w *witnesses) named(call, run, path string) *called {
	if len(w.calls) == 0 {
		return nil
	}
	if c := w.calls[call]; c != nil && call != "" {
		return c
	}
	return w.calls[run+"/"+path]
}

func (w *witnesses) intent(_ *log, _ uint64, d *intentData) {
	if c := w.named(d.Call, d.Run, d.Path); c != nil {
		c.run, c.step = d.Run, d.Path
		c.intents = append(c.intents, intentMark{attempt: d.Attempt, expires: d.Expires})
	}
}

func (w *witnesses) done(l *log, seq uint64, d *doneData) {
	if d.Retry > 0 {
		work, _, _ := d.try()
		if c := w.named(d.Call, d.Run, work); c != nil {
			if c.failed == nil {
				c.failed = map[uint64]int{}
			}
			c.failed[d.Attempt]++
		}
		return
	}
	c := w.named(d.Call, d.Run, d.Path)
	if c == nil && d.Kind == "tool" && w.counted[d.Name] && d.Code == "" {
		c = add(w.calls, d.Run+"/"+d.Path, d.Run, d.Path) // recorded without an execution
	}
	for _, c := range []*called{c, w.requests[d.Run+"/"+d.Path]} {
		if c != nil && !c.done {
			c.run, c.step = d.Run, d.Path
			c.done, c.by, c.code, c.log, c.commit, c.effect = true, d.Attempt, d.Code, l, seq, d.Effect
		}
	}
}

func (w *witnesses) late(d *doneData) {
	if c := w.named(d.Call, d.Run, d.Path); c != nil && d.Code == "" {
		c.evidence = append(c.evidence, d.Attempt)
	}
}

// received stores a control fact that a client may have seen acknowledged.
func (w *witnesses) received(l *log, d *receivedData) {
	if len(w.told) == 0 {
		return
	}
	for _, target := range []string{"run " + d.Run, "session " + l.id} {
		w.heard[heard(l.tenant, target, d.Kind, d.Says, d.Reason+d.Text)]++
		w.heard[heard(l.tenant, target, d.Kind, "", "")]++
	}
}

// decided stores a decision about a run or a session.
func (w *witnesses) decided(l *log, target, verb, by, reason string) {
	if len(w.told) > 0 {
		w.heard[heard(l.tenant, target, verb, by, reason)]++
	}
}

func heard(tenant, target, verb, by, text string) string {
	return strings.Join([]string{tenant, target, verb, by, text}, "\x00")
}

// finishWitnesses compares the witnesses with the logs.
func (a *audit) finishWitnesses() {
	attempts := map[string]uint64{}
	for _, g := range a.runs {
		attempts[g.id] = max(attempts[g.id], g.attempt, g.children)
	}
	gone := map[string]bool{} // by run alone, as witnesses of calls have no tenant
	for k := range a.aliases {
		gone[k.id] = gone[k.id] || a.purgedRun(k)
	}
	for k := range a.logs { // branches have no alias
		gone[k.id] = gone[k.id] || a.purgedRun(k)
	}
	for model, calls := range map[bool]map[string]*called{false: a.witness.calls, true: a.witness.requests} {
		for name, c := range calls {
			if !gone[c.run] {
				a.finishCall(name, c, attempts[c.run], model)
			}
		}
	}
	for i := range a.witness.told {
		a.finishTelling(&a.witness.told[i])
	}
}

func (a *audit) finishCall(name string, c *called, attempts uint64, model bool) {
	what, who := "call "+name, "executions"
	if model {
		what, who = "step "+name, "model requests"
	}
	says := func(expected, found string) func() Violation {
		return func() Violation {
			v := Violation{Run: c.run, Expected: expected, Found: found}
			if c.log != nil {
				v = c.log.says(c.commit, c.run, expected, found)
			}
			return v
		}
	}
	type once struct{ attempt, try uint64 }
	seen := map[once]int{}
	for _, r := range c.runs {
		seen[once{r.attempt, r.try}]++
	}
	for o, n := range seen {
		a.check(NoRepeat, n <= 1+c.failed[o.attempt], says(fmt.Sprintf("%s once in attempt %d, and once for each failed try", what, o.attempt), fmt.Sprintf("%d %s", n, who)))
	}
	for _, r := range c.runs {
		a.check(NoRepeat, r.attempt <= attempts || a.o.Open, says(fmt.Sprintf("%s within the %d attempts that the logs know", what, attempts), fmt.Sprintf("%s of attempt %d", who, r.attempt)))
		if c.done {
			a.check(ReadClaim, r.attempt <= c.by, says(fmt.Sprintf("%s not to run again, attempt %d recorded it", what, c.by), fmt.Sprintf("%s of attempt %d", who, r.attempt)))
		}
		if model {
			continue
		}
		if r.effect == nonIdempotent || c.effect == nonIdempotent {
			a.announced(c, r, what, says)
		}
	}
	// An effect that an operator confirmed as happened is of an earlier attempt.
	resolved := c.done && a.runs[c.log.runKey(c.run)].happened[c.step]
	if c.done && !model && !resolved && c.code == "" && !a.o.Open {
		a.check(NoRepeat, slices.ContainsFunc(c.runs, func(r execution) bool { return r.attempt == c.by }),
			says(fmt.Sprintf("an execution of %s by attempt %d, which recorded it", what, c.by), "none in the witness"))
	}
	for _, attempt := range c.evidence {
		if a.o.Open {
			break // the witness was read before the log
		}
		a.check(NoRepeat, slices.ContainsFunc(c.runs, func(r execution) bool { return r.attempt == attempt }),
			says(fmt.Sprintf("an execution of %s by attempt %d, of which there is a late outcome", what, attempt), "none in the witness"))
	}
}

// announced checks that a non-idempotent effect began before an intent of its
// attempt expired.
func (a *audit) announced(c *called, r execution, what string, says func(string, string) func() Violation) {
	last := int64(-1)
	for _, i := range c.intents {
		if i.attempt == r.attempt {
			last = max(last, i.expires)
		}
	}
	a.check(NoRepeat, last >= 0 || a.o.Open, says("an intent of attempt "+fmt.Sprint(r.attempt)+" before "+what, "an execution without one"))
	if last >= 0 && !r.time.IsZero() {
		late := r.time.UnixMilli() - last
		a.check(NoRepeat, late <= 0, says(what+" to begin before its intent expires", fmt.Sprintf("it began %d ms after", late)))
	}
}

// finishTelling looks in the logs for a response that a client recorded.
func (a *audit) finishTelling(t *Told) {
	if !a.wanted(t.Tenant) {
		return
	}
	k := key{t.Tenant, t.Run}
	if a.purgedRun(k) {
		return // the run is archived, and its log purged
	}
	g := a.runs[k]
	says := func(expected, found string) func() Violation {
		return func() Violation {
			v := Violation{Tenant: t.Tenant, Session: t.Session, Run: t.Run, Commit: t.Seq, Expected: expected, Found: found}
			if g != nil && g.home != nil && v.Session == "" {
				v.Session = g.home.id
			}
			return v
		}
	}
	held := g != nil && g.home != nil
	switch t.Op {
	case "submit":
		a.check(Acknowledged, a.accounted(k), says("run "+t.Run+", of which the submit was acknowledged", "it in no log, queue or refusal"))
		if !a.o.Open && held {
			a.check(OneEnd, g.end != nil, says("one end of run "+t.Run+", which was accepted", "none"))
		}
	case "commit":
		a.heldCommit(t, says)
	case "result":
		u, untaken := a.untaken[k]
		ok := held && g.end != nil && g.end.state == t.State || !held && untaken && u.state == t.State
		found := "no end of it"
		if held && g.end != nil {
			found = "state " + g.end.state
		}
		a.check(Acknowledged, ok, says("run "+t.Run+" to have "+t.State+", as a client was told", found))
		if t.Seq > 0 {
			a.heldCommit(t, says)
		}
	case "control":
		a.heldControl(t, g, says)
	}
}

func (a *audit) heldCommit(t *Told, says func(string, string) func() Violation) {
	l := a.logs[key{t.Tenant, t.Session}]
	if l != nil && l.purged() && t.Seq <= l.tombstone.seq {
		return // its archive holds the commit
	}
	var m *commitMark
	if l != nil {
		m = l.at(t.Seq)
	}
	a.check(Acknowledged, m != nil, says("the commit, which a client was told of", "no such commit"))
	if m != nil && t.Hash != "" {
		a.check(Acknowledged, m.hash == markOf(t.Hash), says("hash "+short(t.Hash)+", which a client was told", fmt.Sprintf("%x", m.hash[:4])))
	}
}

func (a *audit) heldControl(t *Told, g *runState, says func(string, string) func() Violation) {
	if l := a.logs[key{t.Tenant, t.Session}]; l != nil && l.purged() {
		return // its archive holds it
	}
	ok := false
	switch t.Verb {
	case "cancel":
		ok = g != nil && g.cancelled || len(a.aliases[key{t.Tenant, t.Run}].Cancelled) > 0
	case "resolve":
		ok = g != nil && g.resolved
	default:
		target := "run " + t.Run
		switch {
		case t.Run == "":
			target = "session " + t.Session
		case (t.Verb == "quarantine" || t.Verb == "release") && g != nil && g.home != nil:
			target = "session " + g.home.id // a quarantine is of the session
		}
		ok = a.witness.heard[heard(t.Tenant, target, t.Verb, t.By, t.Text)] > 0
		if t.Run == "" && t.Verb == "message" {
			ok = ok || a.logs[key{t.Tenant, t.Session}] != nil // without an open run the message becomes a chunk at once
		}
	}
	a.check(Acknowledged, ok, says(strings.TrimSpace(t.Verb+" "+t.By)+" of run "+t.Run+", which was acknowledged", "nothing of it in the log"))
}
