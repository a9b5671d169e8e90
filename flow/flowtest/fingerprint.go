package flowtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// elapsed is the only part of a tool's body that differs by itself.
var elapsed = regexp.MustCompile(`"elapsed_ms":[0-9]+`)

// drawn is an id that flow.NewID gave the function of a step. A function that was cut off
// draws another one when it runs again.
var drawn = regexp.MustCompile(`\b[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}\b`)

// input is the digest of a step's input.
var input = regexp.MustCompile(` input [0-9a-f]{32}`)

// withoutDrawn replaces each drawn id by a number, so that two texts are equal if the
// same places have the same id. It then removes digests of inputs, which may cover such
// an id.
func withoutDrawn(text string) string {
	bare := input.ReplaceAllString(text, "")
	if !drawn.MatchString(bare) {
		return text
	}
	known := map[string]string{}
	return drawn.ReplaceAllStringFunc(bare, func(id string) string {
		if known[id] == "" {
			known[id] = fmt.Sprintf("id-%d", len(known)+1)
		}
		return known[id]
	})
}

// fingerprint is the content of a world's log without sequence numbers, hashes, epochs,
// attempts, times and random ids.
type fingerprint struct {
	parts     []part              // in the order of their ids
	cancelled map[session.ID]bool // branches that did not decide a join
}

// part is one session of a fingerprint.
type part struct {
	id      session.ID
	parents []session.ID
	lines   []line
}

// line is one fact of a session. Facts about another session name it.
type line struct {
	text  string
	step  run.Path // of the step that recorded it, if there is one
	about session.ID
}

// fingerprintOf reads the log of a world.
func fingerprintOf(t testing.TB, w *world) fingerprint {
	t.Helper()
	all := fingerprint{cancelled: map[session.ID]bool{}}
	values := journal.NewValues(w.log)
	keys := w.stored.Keys()
	slices.SortFunc(keys, func(a, b session.Key) int { return strings.Compare(string(a.ID), string(b.ID)) })
	for _, k := range keys {
		s, err := values.At(t.Context(), session.Ref{Key: k})
		if err != nil {
			t.Fatalf("flowtest: read %s: %v", k, err)
		}
		p := part{id: k.ID}
		var opening strings.Builder
		fmt.Fprintf(&opening, "session %s  version %d  opened %s", k.ID, s.Ref().Version, s.Opening().Kind)
		for from := range s.Parents() {
			fmt.Fprintf(&opening, " %s", from.Ref)
			p.parents = append(p.parents, from.ID)
		}
		if c := s.Closing(); c.State != "" {
			fmt.Fprintf(&opening, "  closed %s %q", c.State, c.Reason)
		}
		p.lines = append(p.lines, line{text: opening.String() + head(s.Placement().Head)})
		for i, c := range s.Chunks() {
			o := c.Origin()
			var text strings.Builder
			fmt.Fprintf(&text, "chunk %d %s by %q at %q%s  %q", i, c.Kind(), o.Agent, o.Step, head(o.Placement.Head), elapsed.ReplaceAllString(c.Text(), `"elapsed_ms":0`))
			for _, call := range c.Calls() {
				fmt.Fprintf(&text, " %s(%s)", call.Name, call.Args)
			}
			p.lines = append(p.lines, line{text: text.String(), step: run.Path(o.Step)})
		}
		facts := all.steps(t, w, k)
		slices.SortFunc(facts, func(a, b line) int { return strings.Compare(a.text, b.text) }) // calls of one round may end in any order
		p.lines = append(p.lines, facts...)
		all.parts = append(all.parts, p)
	}
	return all
}

// steps returns the outcomes of the steps and runs of a log, and records the branches
// that did not decide its joins.
func (f *fingerprint) steps(t testing.TB, w *world, k session.Key) []line {
	t.Helper()
	var lines []line
	for e, err := range w.log.Read(t.Context(), k, commitlog.Position{}) {
		if err != nil {
			t.Fatalf("flowtest: read %s: %v", k, err)
		}
		for _, ev := range e.Commit.Events {
			switch ev.Kind {
			case journal.KindStepCompleted:
				d, err := journal.Decode[journal.StepCompleted](ev)
				if err != nil {
					t.Fatalf("flowtest: %v", err)
				}
				var text strings.Builder
				fmt.Fprintf(&text, "step %s %s %q input %s code %q%s", d.Path, d.Kind, d.Name, d.Input, d.Code, head(d.HeadAfter))
				for _, id := range drawn.FindAllString(d.Value, -1) {
					text.WriteString(" value with " + id)
				}
				lines = append(lines, line{text: text.String(), step: d.Path})
			case journal.KindEnded:
				d, err := journal.Decode[journal.Ended](ev)
				if err != nil {
					t.Fatalf("flowtest: %v", err)
				}
				lines = append(lines, line{text: fmt.Sprintf("run %s %s code %q output %q leaves %v", d.Run, d.State, d.Code, elapsed.ReplaceAllString(d.Output, ""), d.Branches)})
			case journal.KindBranchOutcomes:
				d, err := journal.Decode[journal.BranchOutcomes](ev)
				if err != nil {
					t.Fatalf("flowtest: %v", err)
				}
				for _, b := range d.Branches {
					f.cancelled[b.Session] = f.cancelled[b.Session] || b.State == session.ClosedCancelled
				}
			case session.KindRejected:
				d, err := commitlog.DecodeRejection(ev)
				if err != nil {
					t.Fatalf("flowtest: %v", err)
				}
				lines = append(lines, line{text: fmt.Sprintf("rejects %s as %s %q", d.Branch.Ref, d.State, d.Reason), about: d.Branch.ID})
			}
		}
	}
	return lines
}

// losers returns the sessions of branches that did not decide a join, and of the branches
// below them. The progress of such a branch before its cancellation, or whether it ended
// before, depends on timing.
func (f fingerprint) losers() map[session.ID]bool {
	lost := map[session.ID]bool{}
	for grew := true; grew; {
		grew = false
		for _, p := range f.parts {
			if !lost[p.id] && (f.cancelled[p.id] || slices.ContainsFunc(p.parents, func(id session.ID) bool { return lost[id] })) {
				lost[p.id], grew = true, true
			}
		}
	}
	return lost
}

// without returns the lines of f that are not of or about one of these sessions.
func (f fingerprint) without(lost map[session.ID]bool) (lines []line) {
	for _, p := range f.parts {
		if lost[p.id] {
			continue
		}
		for _, l := range p.lines {
			if !lost[l.about] {
				lines = append(lines, line{text: fmt.Sprintf("%s: %s", p.id, l.text), step: l.step})
			}
		}
	}
	texts := make([]string, len(lines))
	for i, l := range lines {
		texts[i] = l.text
	}
	for i, text := range strings.Split(withoutDrawn(strings.Join(texts, "\n")), "\n") {
		if i < len(lines) {
			lines[i].text = text
		}
	}
	return lines
}

// difference is the first fact in which two fingerprints differ: its two texts, "" if one
// has none, and the step that recorded it, if there is one.
type difference struct {
	want, got string
	step      run.Path
	call      string // file and line of the step's call
}

func (d *difference) String() string {
	side := func(text string) string {
		if text == "" {
			return "nothing"
		}
		return text
	}
	text := fmt.Sprintf("  without a crash: %s\n  after the crash: %s", side(d.want), side(d.got))
	if d.call != "" {
		text = fmt.Sprintf("  %s, step %s\n", d.call, d.step) + text
	}
	return text
}

// compare returns the first difference, or nil. The sessions of branches that lost in
// either are not compared.
func (f fingerprint) compare(got fingerprint) *difference {
	lost := f.losers()
	for id := range got.losers() {
		lost[id] = true
	}
	a, b := f.without(lost), got.without(lost)
	for i := range max(len(a), len(b)) {
		var x, y line
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x.text != y.text {
			return &difference{want: x.text, got: y.text, step: cmp.Or(x.step, y.step, nextStep(a[min(i, len(a)):]))}
		}
	}
	return nil
}

// nextStep returns the step of the first line with one: a step commits the rows before
// its own.
func nextStep(lines []line) run.Path {
	for _, l := range lines {
		if l.step != "" {
			return l.step
		}
	}
	return ""
}

// head returns the text for the head of a workspace, or "".
func head(d blob.Digest) string {
	if d.IsZero() {
		return ""
	}
	return "  head " + d.String()
}

// checkWitness reads the model's own log: one request per step and attempt.
func checkWitness(t testing.TB, w *world) {
	t.Helper()
	seen := map[string]int{}
	for line := range bytes.Lines(w.witness.Bytes()) {
		var e scripted.Entry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("flowtest: the model's request log: %v", err)
		}
		if seen[e.Step]++; seen[e.Step] > 1 && e.Try <= 1 {
			t.Errorf("flowtest: the model was asked twice for step %s", e.Step)
		}
	}
}
