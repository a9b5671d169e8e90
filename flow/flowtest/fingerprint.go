package flowtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/commitlog"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/session"
)

// elapsed is the one thing in a tool's body that differs by itself.
var elapsed = regexp.MustCompile(`"elapsed_ms":[0-9]+`)

// drawn is an id that flow.NewID gave the function of a step. A function that was
// cut off draws another one when it runs again.
var drawn = regexp.MustCompile(`\b[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}\b`)

// input is the digest of what a step was asked for.
var input = regexp.MustCompile(` input [0-9a-f]{32}`)

// withoutDrawn puts a number in the place of each id that was drawn, so that what
// has the same id in one text has it in the other. Digests that such an id may be
// in say nothing any more and go.
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

// fingerprint says what a world's log holds, without sequence numbers, hashes,
// epochs, attempts, times and random ids.
func fingerprint(t testing.TB, w *world) string {
	t.Helper()
	var b strings.Builder
	values := journal.NewValues(w.log)
	keys := w.stored.Keys()
	slices.SortFunc(keys, func(a, b session.Key) int { return strings.Compare(string(a.ID), string(b.ID)) })
	for _, k := range keys {
		s, err := values.At(t.Context(), session.Ref{Key: k})
		if err != nil {
			t.Fatalf("flowtest: read %s: %v", k, err)
		}
		fmt.Fprintf(&b, "session %s  version %d  opened %s", k.ID, s.Ref().Version, s.Opening().Kind)
		for p := range s.Parents() {
			fmt.Fprintf(&b, " %s", p.Ref)
		}
		if c := s.Closing(); c.State != "" {
			fmt.Fprintf(&b, "  closed %s %q", c.State, c.Reason)
		}
		fmt.Fprintf(&b, "  head %s\n", s.Placement().Head)
		for i, c := range s.Chunks() {
			o := c.Origin()
			fmt.Fprintf(&b, "  chunk %d %s by %q at %q head %s %q", i, c.Kind(), o.Agent, o.Step, o.Placement.Head, elapsed.ReplaceAllString(c.Text(), `"elapsed_ms":0`))
			for _, call := range c.Calls() {
				fmt.Fprintf(&b, " %s(%s)", call.Name, call.Args)
			}
			b.WriteString("\n")
		}
		lines := steps(t, w, k)
		slices.Sort(lines) // calls of one round may end in any order
		b.WriteString(strings.Join(lines, ""))
	}
	return withoutDrawn(b.String())
}

// steps says how each step and each run of a log ended.
func steps(t testing.TB, w *world, k session.Key) []string {
	t.Helper()
	var lines []string
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
				var line strings.Builder
				line.WriteString(fmt.Sprintf("  step %s %s %q input %s code %q head %s", d.Path, d.Kind, d.Name, d.Input, d.Code, d.HeadAfter))
				for _, id := range drawn.FindAllString(d.Value, -1) {
					line.WriteString(" value with " + id)
				}
				lines = append(lines, line.String()+"\n")
			case journal.KindEnded:
				d, err := journal.Decode[journal.Ended](ev)
				if err != nil {
					t.Fatalf("flowtest: %v", err)
				}
				lines = append(lines, fmt.Sprintf("  run %s %s code %q output %q leaves %v\n", d.Run, d.State, d.Code, elapsed.ReplaceAllString(d.Output, ""), d.Branches))
			case session.KindRejected:
				d, err := commitlog.DecodeRejection(ev)
				if err != nil {
					t.Fatalf("flowtest: %v", err)
				}
				lines = append(lines, fmt.Sprintf("  rejects %s as %s %q\n", d.Branch.Ref, d.State, d.Reason))
			}
		}
	}
	return lines
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

func diff(want, got string) string {
	return cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n"))
}
