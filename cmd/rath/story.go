package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// teller turns the lineage records of one tree, as they arrive, into the lines
// of a story: one per turn of an agent or a tool. What a record rests on is
// told first: records of different sessions may overtake each other on their
// way. It is not safe for concurrent use.
type teller struct {
	tell func(storyLine) // gets each line once it is final
	look looker          // adds what records do not carry; may be nil
	// user tells also what users said.
	user bool
	// all tells every branch; without it, of a large fan-out, some.
	all bool
	// labels name the sessions; those of before are counted already.
	labels *lineage.Labels

	threads map[session.ID]*thread
	asked   map[stepKey]string // the agent of a model step
	moved   map[session.ID]bool
	woken   map[run.ID]bool     // by what has come, so that going on is no news
	folded  map[session.ID]bool // of which is told only what goes wrong or asks
	empty   bool                // a search that found nothing was told
	held    []lineage.Record
	turn    *turn
	at      session.ID // whose line was told last
}

type stepKey struct {
	run  run.ID
	path run.Path
}

// Of a fan-out with more than foldFrom branches foldTo are told, as in the tree
// of "graph".
const (
	foldFrom = 10
	foldTo   = 6
)

// thread is what the teller knows of a session.
type thread struct {
	label   string
	depth   int
	commit  uint64 // the last one that was told
	before  session.Version
	version session.Version // after the last record
	known   bool            // whether version is
	head    string          // of the files
	speaker string          // the last agent
}

// turn is what one agent or tool did without a break.
type turn struct {
	session session.ID
	run     run.ID
	actor   string
	version session.Version
	acts    []string
	right   []string
	said    string
	failed  bool
}

func newTeller(tell func(storyLine)) *teller {
	return &teller{tell: tell, labels: &lineage.Labels{}, threads: map[session.ID]*thread{}, asked: map[stepKey]string{}, moved: map[session.ID]bool{}, woken: map[run.ID]bool{}, folded: map[session.ID]bool{}}
}

// add takes the next record. Records of one session come in order.
func (t *teller) add(ctx context.Context, r lineage.Record) {
	t.labels.Add(&r)
	t.held = append(t.held, r)
	for t.step(ctx) {
	}
}

// step tells the first held record that is ready.
func (t *teller) step(ctx context.Context) bool {
	waits := map[session.ID]bool{}
	for i := range t.held {
		r := t.held[i]
		if waits[r.Session] || !t.ready(&r) {
			waits[r.Session] = true
			continue
		}
		t.held = slices.Delete(t.held, i, i+1)
		t.record(ctx, &r)
		return true
	}
	return false
}

// ready reports whether all was told that a record refers to.
func (t *teller) ready(r *lineage.Record) bool {
	refs := r.Parents
	if r.Kind == lineage.Rejected {
		refs = r.Branches
	}
	for _, p := range refs {
		if p.Session == r.Session || p.Commit == 0 {
			continue
		}
		if th := t.threads[p.Session]; th == nil || th.commit < p.Commit {
			return false
		}
	}
	return true
}

// release tells everything that is held: what it waits for does not come.
func (t *teller) release(ctx context.Context) {
	for len(t.held) > 0 {
		r := t.held[0]
		t.held = t.held[1:]
		t.record(ctx, &r)
		for t.step(ctx) {
		}
	}
}

// finish tells what is left.
func (t *teller) finish(ctx context.Context) {
	t.release(ctx)
	t.close()
}

// advance keeps the count of versions, which records tell relative to their
// commit.
func (th *thread) advance(r *lineage.Record) {
	if r.Commit != th.commit {
		th.before, th.commit = th.version, r.Commit
	}
	if r.Rows > 0 && th.known {
		th.version = th.before + session.Version(r.Rows)
	}
	if r.Head != "" {
		th.head = r.Head
	}
}

func (t *teller) record(ctx context.Context, r *lineage.Record) {
	th := t.threads[r.Session]
	if th == nil {
		th = t.open(r)
	}
	th.advance(r)
	if r.Wake > 0 {
		t.woken[r.Run] = true
	}
	switch r.Kind {
	case lineage.Recalled:
		text := r.Action()
		if strings.Contains(text, " 0 ") {
			if t.empty { // that there is nothing is worth telling once
				text = ""
			}
			t.empty = true
		}
		t.act(r, th, r.Agent, text, "")
	case lineage.Model:
		t.model(r, th)
	case lineage.Tool:
		t.tool(ctx, r, th)
	case lineage.Chunk:
		t.chunk(r, th)
	case lineage.Adopted, lineage.Merged:
		word := "ADOPTED"
		if r.Kind == lineage.Merged {
			word = "MERGED"
		}
		from := slices.DeleteFunc(slices.Clone(r.Parents), func(p lineage.Ref) bool { return p.Session == r.Session || t.threads[p.Session] == nil })
		if len(from) == 1 {
			t.verdict(from[0].Session, word+" into "+th.label, term.Green)
		} else if len(from) > 1 {
			t.joined(r, th, word, from)
		}
	case lineage.Rejected:
		for _, b := range r.Branches {
			text := strings.ToUpper(r.State)
			if r.Reason != "" {
				text += ` "` + term.Line(r.Reason, 60) + `"`
			}
			t.verdict(b.Session, text, term.Red)
		}
	case lineage.FannedOut:
		t.alone(r, th, "")
		t.fold(r, th)
	case lineage.Remembered, lineage.Compressed, lineage.Selected, lineage.Gathered, lineage.Awaited, lineage.Resolved, lineage.Late:
		t.alone(r, th, "")
	case lineage.Did:
		// What a call or a join does on its way is told with it.
		if r.Failed() || r.Name != "call" && !strings.HasSuffix(string(r.Step), ".commit") {
			t.alone(r, th, "")
		}
	case lineage.Placed:
		if r.Failed() {
			t.alone(r, th, term.Red)
		}
	case lineage.Review, lineage.Cancel, lineage.Warning, lineage.Message:
		t.alone(r, th, term.Yellow)
	case lineage.Waiting:
		if asks(r) != "" || len(r.Waits) > 0 && r.Waits[0].Kind == run.WaitTimer {
			t.alone(r, th, term.Yellow)
		}
	case lineage.Claimed:
		if r.Home == "" && r.Attempt > 1 && !t.woken[r.Run] {
			t.alone(r, th, term.Yellow)
		}
		t.woken[r.Run] = t.woken[r.Run] && r.Home != ""
	case lineage.Released:
		if r.State != "" {
			t.alone(r, th, term.Yellow)
		}
	case lineage.Ended:
		if r.State != string(run.Succeeded) {
			t.alone(r, th, term.Red)
		} else {
			t.close()
		}
	}
}

// fold leaves branches of a large fan-out untold, and says so.
func (t *teller) fold(r *lineage.Record, th *thread) {
	if t.all || len(r.Branches) <= foldFrom || t.folded[r.Session] {
		return
	}
	for _, b := range r.Branches[foldTo:] {
		t.folded[b.Session] = true
	}
	t.say(storyLine{
		Depth: max(th.depth+1, 1), Label: "...", Session: r.Session, heading: true,
		Text: fmt.Sprintf("of %d more branches only what goes wrong or asks", len(r.Branches)-foldTo),
	})
}

// open begins the story of a session.
func (t *teller) open(r *lineage.Record) *thread {
	t.close()
	th := &thread{label: t.labels.Of(r.Session), version: r.Version, known: r.Commit == 1}
	t.threads[r.Session] = th
	if len(r.Parents) == 0 {
		return th
	}
	var from []string
	for i, p := range r.Parents {
		name := lineage.Short(p.Session)
		t.folded[r.Session] = t.folded[r.Session] || t.folded[p.Session]
		if parent := t.threads[p.Session]; parent != nil {
			name = parent.label
			th.depth = max(th.depth, parent.depth+1)
			if i == 0 {
				th.head = parent.head
			}
		}
		from = append(from, fmt.Sprintf("%s at %d", name, p.Version))
	}
	if r.Kind == lineage.Forked || r.Kind == lineage.Detached {
		th.version = r.Parents[0].Version
	}
	text := strings.Join(from, " and ")
	switch r.Kind {
	case lineage.Forked:
		text = "fork of " + text
		// A branch beside this one changed files: here they are as before.
		if parent := r.Parents[0].Session; t.moved[parent] && th.head != "" {
			text += ", files back to " + th.head[:min(6, len(th.head))]
		}
	case lineage.Detached:
		text = "detached from " + text
	case lineage.Concatenated:
		text = "concatenates " + text
	case lineage.Imported:
		text = "import " + r.Name
	default:
		text = "summary of " + text
	}
	if r.Name != "" && r.Kind != lineage.Imported {
		text += " (" + term.Line(r.Name, 30) + ")"
	}
	th.depth = max(th.depth, 1)
	t.say(storyLine{Depth: th.depth, Label: th.label, Session: r.Session, Text: text, heading: true})
	return th
}

// act adds to the turn of an actor, or begins one. Without an actor it belongs
// to whoever acts next.
func (t *teller) act(r *lineage.Record, th *thread, actor, text, right string) {
	if u := t.turn; u == nil || u.session != r.Session || u.run != r.Run || u.actor != actor && u.actor != "" && actor != "" || u.said != "" {
		t.close()
		t.turn = &turn{session: r.Session, run: r.Run, actor: actor}
	}
	u := t.turn
	u.actor, u.version = cmp.Or(u.actor, actor), th.version
	u.failed = u.failed || r.Failed()
	if text != "" && !slices.Contains(u.acts, text) {
		u.acts = append(u.acts, text)
	}
	if right != "" {
		u.right = append(u.right, right)
	}
}

func (t *teller) model(r *lineage.Record, th *thread) {
	t.asked[stepKey{r.Run, r.Step}] = r.Actor()
	th.speaker = r.Actor()
	switch {
	case r.Failed():
		t.act(r, th, r.Actor(), r.Action(), "")
		t.close()
	case r.Calls > 0:
		t.act(r, th, r.Actor(), "", "")
	default:
		t.act(r, th, r.Actor(), "", "")
		t.turn.said = strings.TrimPrefix(r.Action(), "says ")
		// The answer of one who did nothing else may be a verdict: it is told
		// with what comes of it.
		if th.depth == 0 || len(t.turn.acts) > 0 {
			t.close()
		}
	}
}

func (t *teller) tool(ctx context.Context, r *lineage.Record, th *thread) {
	actor := r.Agent
	if i := strings.LastIndexByte(string(r.Step), '.'); actor == "" && i > 0 {
		actor = t.asked[stepKey{r.Run, r.Step[:i]}]
	}
	text, right := strings.TrimPrefix(r.Action(), r.Tool+" "), ""
	called := actor == ""
	if called {
		if actor = r.Tool; r.Effect == "sandboxed" {
			actor = "sandbox"
		}
	}
	if t.look != nil && !r.Failed() {
		if r.HeadFrom != "" && r.Head != "" && r.HeadFrom != r.Head && !called {
			if what, lines := t.look.changed(ctx, r.Tenant, r.HeadFrom, r.Head); what != "" {
				text, right = what, lines
			}
		}
		if called {
			if right = t.look.printed(ctx, session.Ref{Key: r.Key(), Version: th.version}, r.Step); right != "" {
				text = cutExit(text)
			}
		}
	}
	if r.HeadFrom != r.Head && r.Head != "" {
		for id, p := range t.threads { // branches of the same parent see it
			if p.depth < th.depth {
				t.moved[id] = true
			}
		}
	}
	t.act(r, th, actor, text, right)
	if called {
		t.close()
	}
}

// cutExit removes what the right column tells better.
func cutExit(text string) string {
	if i := strings.LastIndex(text, ", exit "); i > 0 {
		return text[:i]
	}
	return text
}

func (t *teller) chunk(r *lineage.Record, th *thread) {
	switch {
	case r.Role == string(session.ToolResult):
		if t.turn != nil && t.turn.session == r.Session {
			t.turn.version = th.version
		}
	case r.Role == string(session.User) && (t.user || r.Run == ""):
		if t.turn == nil || t.turn.actor != "" { // a recall belongs to who speaks next
			t.close()
		}
		t.say(storyLine{Depth: th.depth, Session: r.Session, Version: th.version, Actor: r.Actor(), Text: r.Action()})
	}
}

// alone tells a record on a line of its own.
func (t *teller) alone(r *lineage.Record, th *thread, style term.Style) {
	t.close()
	if style == "" && r.Failed() {
		style = term.Red
	}
	t.say(storyLine{Depth: th.depth, Session: r.Session, Version: th.version, Actor: r.Actor(), Text: r.Action(), style: style})
}

// joined tells what became of several branches at once.
func (t *teller) joined(r *lineage.Record, th *thread, word string, from []lineage.Ref) {
	labels := make([]string, len(from))
	for i, p := range from {
		labels[i] = t.threads[p.Session].label
	}
	t.close()
	t.say(storyLine{Depth: th.depth, Session: r.Session, Version: th.version, Actor: "workflow", Text: word + " " + strings.Join(labels, ", "), style: term.Green})
}

// verdict tells what became of a branch, in place of the answer that decided
// it.
func (t *teller) verdict(id session.ID, text string, style term.Style) {
	th := t.threads[id]
	if th == nil || t.folded[id] {
		return
	}
	if u := t.turn; u != nil && u.session == id && len(u.acts) == 0 {
		t.turn = nil
	}
	t.close()
	t.say(storyLine{Depth: th.depth, Session: id, Version: th.version, Actor: th.speaker, Text: text, style: style})
}

// close tells the turn that is open.
func (t *teller) close() {
	u := t.turn
	if t.turn = nil; u == nil {
		return
	}
	// What was found in memory comes after what was done.
	slices.SortStableFunc(u.acts, func(a, b string) int {
		return cmp.Compare(len(a)-len(strings.TrimPrefix(a, "recalls ")), len(b)-len(strings.TrimPrefix(b, "recalls ")))
	})
	text := strings.Join(u.acts, ", ")
	if text == "" {
		text = u.said
	}
	if text == "" {
		return // it asked for tools that are not told of yet
	}
	l := storyLine{
		Depth: t.threads[u.session].depth, Session: u.session, Version: u.version, Actor: cmp.Or(u.actor, "memory"), Text: text,
		Right: strings.Join(u.right, ", "),
	}
	if u.failed {
		l.style = term.Red
	}
	t.say(l)
}

func (t *teller) say(l storyLine) {
	if t.folded[l.Session] && l.style != term.Red && l.style != term.Yellow {
		return
	}
	if l.Session != t.at && !l.heading {
		l.Label = t.threads[l.Session].label
	}
	t.at = l.Session
	t.tell(l)
}
