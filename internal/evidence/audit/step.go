package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// openQuestion is a repeated effect that a decision in another log may explain.
type openQuestion struct {
	run     *runState
	log     *log
	commit  uint64
	path    string
	attempt uint64
	code    string // of the outcome
	again   int    // the required number of decisions "again"; 0 requires "happened"
	found   string
}

const nonIdempotent = "non_idempotent"

// works checks that an event of a step is from the attempt and the writer that hold the
// session.
func (f *folding) works(e *event, id string, r *logRun, attempt uint64, what string) {
	f.attempt(id, r, attempt, what)
	f.a.check(OneWriter, r.epoch == f.c.epoch, f.says(id, fmt.Sprintf("a claim in epoch %d before %s", f.c.epoch, what), fmt.Sprintf("the last one in epoch %d", r.epoch)))
	f.a.check(Waits, r.state != "waiting" || e.batch != "" && r.parting == parting{f.c.seq, e.batch}, f.says(id, "no step while the run waits", what))
	f.a.check(OneWriter, r.state != "queued" && r.state != "", f.says(id, "a claim after the run was given back", what))
}

func (f *folding) intent(e *event, d intentData) {
	r, g := f.here(d.Run)
	what := "step.intent " + d.Path
	if !f.lives(d.Run, r, what) {
		return
	}
	f.works(e, d.Run, r, d.Attempt, what)
	f.a.check(OneEnd, !r.cancelled, f.says(d.Run, "no intent after run.cancel_requested", what))
	r.iterates(f, d.Run, d.Path, what)
	by, done := r.steps[d.Path]
	f.a.check(ReadClaim, !done, f.says(d.Run, fmt.Sprintf("step %s not to run again, attempt %d recorded it", d.Path, by), fmt.Sprintf("an intent of attempt %d", d.Attempt)))
	before, open := r.intents[d.Path]
	switch {
	case open && before.attempt == d.Attempt:
		f.a.check(NoRepeat, before.expires <= e.time, f.says(d.Run, "the intent before at step "+d.Path+" to have expired", "another one of the same attempt"))
	case open:
		f.a.repeated = append(f.a.repeated, openQuestion{g, f.l, f.c.seq, d.Path, d.Attempt, "", 1, "a second intent for the call"})
	default:
		f.a.counts[NoRepeat].Checked++
	}
	r.intents[d.Path] = intentMark{d.Attempt, d.Expires, e.time}
	f.a.witness.intent(f.l, f.c.seq, &d)
}

func (f *folding) done(e *event, d doneData) {
	r, g := f.here(d.Run)
	what := "step.done " + d.Path
	if !f.lives(d.Run, r, what) {
		return
	}
	f.works(e, d.Run, r, d.Attempt, what)
	f.a.check(Format, e.batch == d.Run+"/"+d.Path, f.says(d.Run, "batch "+d.Run+"/"+d.Path, e.batch))
	if d.Row {
		f.waiting = append(f.waiting, e.batch)
	}
	by, twice := r.steps[d.Path]
	f.a.check(NoRepeat, !twice, f.says(d.Run, fmt.Sprintf("step %s recorded once, attempt %d did", d.Path, by), fmt.Sprintf("it again by attempt %d", d.Attempt)))
	if d.Kind == "tool" && d.Code == "timeout" {
		if r.slow == nil {
			r.slow = map[string]bool{}
		}
		r.slow[d.Path] = true
	}
	r.iterates(f, d.Run, d.Path, what)
	work := r.tried(f, &d)
	intent, announced := r.intents[work]
	f.a.check(OneEnd, !r.cancelled || announced || d.Kind == "reject", f.says(d.Run, "no step after run.cancel_requested but of calls under way", what))
	if d.Effect == nonIdempotent {
		f.once(&d, g, intent, announced)
	}
	if head, known := f.before(e.batch); d.HeadBefore != "" && known {
		f.a.check(Workspace, d.HeadBefore == head, f.says(d.Run, "step "+d.Path+" to start from files "+short(head), short(d.HeadBefore)))
	}
	moved := slices.ContainsFunc(f.heads, func(h headMark) bool { return h.batch == e.batch })
	if d.HeadAfter != "" && moved && f.l.headKnown {
		f.a.check(Workspace, d.HeadAfter == f.l.head, f.says(d.Run, "files "+short(d.HeadAfter)+" of the session after step "+d.Path+", as it says", short(f.l.head)))
	}
	f.a.check(Waits, d.Inbox <= r.inboxed, f.says(d.Run, fmt.Sprintf("an inbox of at most %d messages", r.inboxed), fmt.Sprintf("step %s takes up to %d", d.Path, d.Inbox)))
	if !twice {
		r.steps[d.Path] = d.Attempt
		r.clear()
		g.paths = append(g.paths, pathMark{hashOf(d.Path), f.l})
	}
	delete(r.intents, work)
	f.given(d.Given)
	switch d.Kind {
	case "result":
		gotEnd(f, r, &d)
	case "await":
		tookEvent(f, r, &d)
	}
	r.took(&d)
	g.spend(&d, r.home)
	f.links(&d)
	switch d.Kind {
	case "fanout":
		g.stand(f, &d)
	case "gather":
		f.gathered(&d)
	case "await":
		g.approval(&d)
	case "do":
		g.hook(&d)
	case "tag":
		g.tagged(f, &d)
	case "defer":
		g.defers(&d)
	case "loop", "iteration":
		r.looped(f, &d, g)
	}
	f.a.witness.done(f.l, f.c.seq, &d)
}

// maxTags is the largest number of tags of a run.
const maxTags = 16

// tagged checks the step that changed a tag.
func (g *runState) tagged(f *folding, d *doneData) {
	if d.Code != "" {
		return
	}
	value, ok := read[string](d.Value)
	if g.tags == nil {
		g.tags = map[string]string{}
	}
	if g.tags[d.Name] = value; value == "" {
		delete(g.tags, d.Name)
	}
	f.a.check(Format, ok && d.Name != "" && len(g.tags) <= maxTags, f.says(d.Run, fmt.Sprintf("a key, a value and at most %d tags", maxTags), fmt.Sprintf("step %s, tag %q of %d", d.Path, d.Name, len(g.tags))))
}

// maxTries is the highest number of a failed try.
const maxTries = 999

// tried returns the path of the work whose outcome a step is. A failed try of it follows
// the one before, and precedes the outcome.
func (r *logRun) tried(f *folding, d *doneData) (work string) {
	if d.Retry == 0 && !d.Held {
		return d.Path
	}
	work, n, ok := d.try()
	what := fmt.Sprintf("step.done %s with a retry", d.Path)
	f.a.check(Format, ok && n >= 1 && n <= maxTries && d.Code != "", f.says(d.Run, "an error at the path of a failed try", what))
	_, before := r.steps[fmt.Sprintf("%s.try.%d", work, n-1)]
	f.a.check(NoRepeat, before || n <= 1, f.says(d.Run, fmt.Sprintf("try %d of step %s before the next one", n-1, work), what))
	by, done := r.steps[work]
	f.a.check(ReadClaim, !done, f.says(d.Run, fmt.Sprintf("step %s not to be tried again, attempt %d recorded it", work, by), what))
	return work
}

// try parses the path of a failed try.
func (d *doneData) try() (work string, n int, ok bool) {
	work, number, ok := cutLast(d.Path, ".try.")
	n, err := strconv.Atoi(number)
	return work, n, ok && err == nil
}

// before returns the workspace head before a batch.
func (f *folding) before(batch string) (head string, known bool) {
	for _, h := range f.heads {
		if h.batch == batch {
			return h.head, h.known
		}
	}
	return f.l.head, f.l.headKnown
}

// once checks that a non-idempotent effect was announced, in the attempt that records it,
// by an intent that had not expired when it was stored.
func (f *folding) once(d *doneData, g *runState, intent intentMark, announced bool) {
	switch {
	case announced && intent.attempt == d.Attempt:
		f.a.check(NoRepeat, intent.expires >= intent.time,
			f.says(d.Run, "an intent that had not expired when it was stored", fmt.Sprintf("step %s after one that was %d ms too old", d.Path, intent.time-intent.expires)))
	case d.Kind == "tool", d.Kind == "do":
		f.a.repeated = append(f.a.repeated, openQuestion{g, f.l, f.c.seq, d.Path, d.Attempt, d.Code, 0, "an effect without an intent of its attempt"})
	}
}

// approval processes the outcome of a call's approval. An outcome that prevents the call
// determines the call's code.
func (g *runState) approval(d *doneData) {
	call, is := strings.CutSuffix(d.Path, ".approval")
	if !is {
		return
	}
	said, ok := read[struct {
		Approved bool            `json:"approved"`
		Value    json.RawMessage `json:"value"` // other arguments
	}](d.Value)
	code := ""
	switch {
	case d.Code != "" || ok && !said.Approved:
		code = "rejected"
	case len(said.Value) > 0:
		code = "invalid_tool_arguments"
	default:
		return
	}
	g.keeps(call, code)
}

// hook is approval for a hook's decision about a call before it began.
func (g *runState) hook(d *doneData) {
	call, is := strings.CutSuffix(d.Path, ".before")
	if !is {
		call, is = strings.CutSuffix(d.Path, ".approved") // about arguments from an approver
	}
	if !is {
		return
	}
	said, _ := read[struct {
		Args    string `json:"args"`
		Refused string `json:"refused"`
	}](d.Value)
	switch {
	case said.Refused != "":
		g.keeps(call, "rejected")
	case said.Args != "":
		g.keeps(call, "invalid_tool_arguments")
	}
}

// keeps stores the code of a call that a decision prevents.
func (g *runState) keeps(call, code string) {
	if g.unbegun == nil {
		g.unbegun = map[string]string{}
	}
	g.unbegun[call] = code
}

// finishQuestions looks for the decisions that explain repeated effects.
func (a *audit) finishQuestions() {
	needed := map[*runState]map[string]int{}
	for _, q := range a.repeated {
		want := "run.resolved \"happened\" for step " + q.path
		ok := q.run.happened[q.path] || q.code != "" && q.run.unbegun[q.path] == q.code
		if q.again > 0 {
			if needed[q.run] == nil {
				needed[q.run] = map[string]int{}
			}
			needed[q.run][q.path]++
			want = "run.resolved \"again\" for step " + q.path
			ok = q.run.again[q.path] >= needed[q.run][q.path]
		}
		if !ok && a.o.Open && q.run.home != q.log {
			continue // the decision may be in a log that was read before the decision was written
		}
		a.check(NoRepeat, ok, func() Violation {
			return q.log.says(q.commit, q.run.id, want, fmt.Sprintf("%s, attempt %d", q.found, q.attempt))
		})
	}
}

func (f *folding) late(_ *event, d doneData) {
	r, _ := f.here(d.Run)
	if d.Attempt == r.attempt && d.Value == "" && (len(d.Requests) > 0 || d.Unlisted > 0) {
		return // the network requests of a call that was cut off and is left open
	}
	if d.Attempt == r.attempt && r.slow[d.Path] {
		return // the answer to a call whose time was up
	}
	f.a.check(OneWriter, d.Attempt < r.attempt || terminal(r.state) || r.state == "queued" || r.state == "needs_review" || r.epoch != f.c.epoch,
		f.says(d.Run, "step.late of an attempt that was superseded", fmt.Sprintf("one of attempt %d, which holds the session", d.Attempt)))
	f.a.witness.late(&d)
}

// links processes the sessions that a step made, joined or rejected.
func (f *folding) links(d *doneData) {
	for _, l := range d.Links {
		if l.Seq > 0 {
			f.a.link(claimOf{from: f.l, seq: f.c.seq, link: l, what: "what step " + d.Path + " names"})
			continue
		}
		f.a.check(Graph, strings.Trim(l.Hash, "0") == "", f.says(d.Run, "a hash of zeros in a link to a session that does not exist yet", l.Hash))
		k := key{f.l.tenant, l.Session}
		if _, ok := f.a.promised[k]; !ok {
			f.a.promised[k] = promise{run: d.Run, path: d.Path}
		}
	}
}

func cutBatch(batch string) (run, path string, ok bool) { return strings.Cut(batch, "/") }

func short(hex string) string {
	if hex == "" {
		return "none"
	}
	return clip(hex, 8)
}

func hashOf(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s)) // never fails
	return h.Sum64()
}

// digestOf shortens a text that is only compared.
func digestOf(s string) string {
	if len(s) <= 64 {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
