package view

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Timeline turns the lineage records of one tree, as they arrive, into lines: one per
// turn of an agent or a tool. Records of different sessions may arrive out of order; a
// record waits for the records it refers to. A Timeline is not safe for concurrent use.
type Timeline struct {
	emit    func(Line) // called with each line once it is final
	Details *Details   // adds details that are not in records; may be nil
	// Users adds the messages of users.
	Users bool
	// All shows every branch; otherwise large fan-outs are folded.
	All bool
	// Labels name the sessions; it already counts earlier sessions.
	Labels *lineage.Labels

	threads map[session.ID]*thread
	asked   map[StepKey]string // the agent of a model step
	moved   map[session.ID]bool
	woken   map[run.ID]bool     // runs that a signal woke, so that the next claim needs no line
	folded  map[session.ID]bool // sessions that show only failures and questions
	empty   bool                // an empty search has a line already
	held    []messages.Record
	turn    *turn
	at      session.ID // of the last line
}

// StepKey names a step.
type StepKey struct {
	Run  run.ID
	Step run.Path
}

// A fan-out with more than foldFrom branches shows foldTo of them, as in the tree of
// "graph".
const (
	foldFrom = 10
	foldTo   = 6
)

// thread is the timeline's state of one session.
type thread struct {
	label   string
	depth   int
	commit  uint64 // the last one
	before  session.Version
	version session.Version // after the last record
	known   bool            // whether version is
	head    string          // of the files
	speaker string          // the last agent
}

// NewTimeline returns a Timeline that passes each line to emit once it is final.
func NewTimeline(emit func(Line)) *Timeline {
	return &Timeline{emit: emit, Labels: &lineage.Labels{}, threads: map[session.ID]*thread{}, asked: map[StepKey]string{}, moved: map[session.ID]bool{}, woken: map[run.ID]bool{}, folded: map[session.ID]bool{}}
}

// Add processes the next record. Records of one session must come in order.
func (t *Timeline) Add(ctx context.Context, r messages.Record) {
	t.Labels.Add(&r)
	t.held = append(t.held, r)
	for t.step(ctx) {
	}
}

// step processes the first held record that is ready, and reports whether there was one.
func (t *Timeline) step(ctx context.Context) bool {
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

// ready reports whether all records that a record refers to have arrived.
func (t *Timeline) ready(r *messages.Record) bool {
	refs := r.Parents
	if r.Kind == messages.KindRejected {
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

// Release processes all held records without waiting for missing ones.
func (t *Timeline) Release(ctx context.Context) {
	for len(t.held) > 0 {
		r := t.held[0]
		t.held = t.held[1:]
		t.record(ctx, &r)
		for t.step(ctx) {
		}
	}
}

// Finish writes the remaining lines.
func (t *Timeline) Finish(ctx context.Context) {
	t.Release(ctx)
	t.close()
}

// advance counts versions, which records give relative to their commit.
func (th *thread) advance(r *messages.Record) {
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

func (t *Timeline) record(ctx context.Context, r *messages.Record) {
	th := t.threads[r.Session]
	if th == nil {
		th = t.open(r)
	}
	th.advance(r)
	if r.Wake > 0 {
		t.woken[r.Run] = true
	}
	switch r.Kind {
	case messages.KindRecalled:
		text := r.Action()
		if strings.Contains(text, " 0 ") {
			if t.empty { // one line about it is enough
				text = ""
			}
			t.empty = true
		}
		t.act(r, th, r.Agent, text, "")
	case messages.KindModel:
		t.model(r, th)
	case messages.KindTool:
		t.tool(ctx, r, th)
	case messages.KindChunk:
		t.chunk(r, th)
	case messages.KindAdopted, messages.KindMerged:
		word := "ADOPTED"
		if r.Kind == messages.KindMerged {
			word = "MERGED"
		}
		from := slices.DeleteFunc(slices.Clone(r.Parents), func(p messages.Ref) bool { return p.Session == r.Session || t.threads[p.Session] == nil })
		if len(from) == 1 {
			t.verdict(from[0].Session, word+" into "+th.label, term.Green)
		} else if len(from) > 1 {
			t.joined(r, th, word, from)
		}
	case messages.KindRejected:
		for _, b := range r.Branches {
			text := strings.ToUpper(r.State)
			if r.Reason != "" {
				text += ` "` + term.Line(r.Reason, 60) + `"`
			}
			style := term.Red
			if r.State == lineage.ScratchEnd {
				style = term.Faint
			}
			t.verdict(b.Session, text, style)
		}
	case messages.KindFannedOut:
		t.alone(r, th, "")
		t.fold(r, th)
	case messages.KindRemembered, messages.KindCompressed, messages.KindSelected, messages.KindGathered, messages.KindAwaited, messages.KindResolved, messages.KindLate:
		t.alone(r, th, "")
	case messages.KindDid:
		// Steps inside a call or a join are part of its line.
		if r.Failed() || r.Name != "call" && !strings.HasSuffix(string(r.Step), ".commit") {
			t.alone(r, th, "")
		}
	case messages.KindPlaced:
		if r.Failed() {
			t.alone(r, th, term.Red)
		}
	case messages.KindReview, messages.KindCancel, messages.KindWarning, messages.KindMessage:
		t.alone(r, th, term.Yellow)
	case messages.KindWaiting:
		if r.Asks() != "" || len(r.Waits) > 0 && r.Waits[0].Kind == run.WaitTimer {
			t.alone(r, th, term.Yellow)
		}
	case messages.KindClaimed:
		if r.Home == "" && r.Attempt > 1 && !t.woken[r.Run] {
			again := *r
			again.Summary = "run " + lineage.Resumes(r)
			t.alone(&again, th, term.Yellow)
		}
		t.woken[r.Run] = t.woken[r.Run] && r.Home != ""
	case messages.KindReleased:
		if r.State != "" {
			t.alone(r, th, term.Yellow)
		}
	case messages.KindEnded:
		if r.State != string(run.Succeeded) {
			t.alone(r, th, term.Red)
		} else {
			t.close()
		}
	}
}

// fold folds branches of a large fan-out and adds a line about them.
func (t *Timeline) fold(r *messages.Record, th *thread) {
	if t.All || len(r.Branches) <= foldFrom || t.folded[r.Session] {
		return
	}
	for _, b := range r.Branches[foldTo:] {
		t.folded[b.Session] = true
	}
	t.say(Line{
		Depth: max(th.depth+1, 1), Label: "...", Session: r.Session, heading: true,
		Text: fmt.Sprintf("of %d more branches only what goes wrong or asks", len(r.Branches)-foldTo),
	})
}

// open begins the lines of a session.
func (t *Timeline) open(r *messages.Record) *thread {
	t.close()
	th := &thread{label: t.Labels.Of(r.Session), version: r.Version, known: r.Commit == 1}
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
	if r.Kind == messages.KindForked || r.Kind == messages.KindDetached {
		th.version = r.Parents[0].Version
	}
	text := strings.Join(from, " and ")
	switch r.Kind {
	case messages.KindForked:
		text = "fork of " + text
		// A sibling branch changed files; here they are unchanged.
		if parent := r.Parents[0].Session; t.moved[parent] && th.head != "" {
			text += ", files back to " + th.head[:min(6, len(th.head))]
		}
	case messages.KindDetached:
		text = "detached from " + text
	case messages.KindConcatenated:
		text = "concatenates " + text
	case messages.KindImported:
		text = "import " + r.Name
	default:
		text = "summary of " + text
	}
	if r.Name != "" && r.Kind != messages.KindImported {
		text += " (" + term.Line(r.Name, 30) + ")"
	}
	th.depth = max(th.depth, 1)
	t.say(Line{Depth: th.depth, Label: th.label, Session: r.Session, Text: text, heading: true})
	return th
}
