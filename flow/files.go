package flow

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/session"
)

// What becomes of files that branches changed in ways that exclude each other. Of a text
// all but KeepBoth decide the lines in conflict alone.
const (
	TakeOurs    = "ours"   // what is merged so far stays, in the order of the branches
	TakeTheirs  = "theirs" // the branch that comes later is taken
	TakeInOrder = "order"  // the branch that comes first in Verdict.Take is taken
	KeepBoth    = "both"   // the later one is put beside the other, as "path.<branch>"
)

// WithFiles is a policy that takes what p takes and merges the files of all outcomes that
// it takes, three-way over what they were made of. What both changed in ways that exclude
// each other the judge decides, which is shown the lines, on a fork of the base as with
// [Agent.Judge]; what it does not decide, and everything if it is nil, becomes what
// onConflict says, one of the constants; "" is KeepBoth. The record of the merge names each
// conflict and what decided it.
func WithFiles(p Policy, onConflict string, judge *Agent) Policy {
	return withFiles{p, onConflict, judge}
}

type withFiles struct {
	Policy
	onConflict string
	judge      *Agent
}

func (p withFiles) Decide(ctx context.Context, j *Joined) (Verdict, error) {
	switch p.onConflict {
	case "", TakeOurs, TakeTheirs, TakeInOrder, KeepBoth:
	default:
		return Verdict{}, fmt.Errorf("flow: a merge of files with %q on conflict: want %s, %s, %s or %s", p.onConflict, TakeOurs, TakeTheirs, TakeInOrder, KeepBoth)
	}
	if p.Policy == nil {
		return Verdict{}, errors.New("flow: WithFiles without a policy: give it one, such as flow.SinceAncestor()")
	}
	v, err := p.Policy.Decide(ctx, j)
	v.Files, v.FileJudge = p.onConflict, p.judge
	if v.Files == "" {
		v.Files = KeepBoth
	}
	return v, err
}

// mergeFiles merges the files of the outcomes that a verdict takes, and has its judge
// asked until every conflict is decided.
func mergeFiles(ctx context.Context, e engine, j *Joined, v Verdict) error {
	var choices []string
	for {
		open, err := e.MergeFiles(ctx, j, j.of, v, choices)
		if err != nil || len(open) == 0 {
			return err
		}
		more, err := judged(ctx, v.FileJudge, j, open)
		if err != nil {
			return err
		}
		choices = append(choices, more...)
	}
}

// judged asks a judge about conflicts and returns, for each, the choice and the reason
// behind a space; "" for one that the answer does not decide.
func judged(ctx context.Context, judge *Agent, j *Joined, open []string) ([]string, error) {
	s, err := Fork(ctx, j.Base)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString("Branches changed the same files in ways that exclude each other. Answer one line for each conflict: its number, then ours, theirs or both, then why in a few words.")
	for i, c := range open {
		fmt.Fprintf(&b, "\n\n%d. %s", i+1, c)
	}
	out, err := judge.Forward(ctx, s.With(session.UserText(b.String())))
	if err != nil {
		return nil, rejectUndecided(ctx, err, s)
	}
	choices := choicesOf(out.Text(), len(open))
	return choices, Reject(ctx, out, journal.OnlyJudged)
}

var choiceLine = regexp.MustCompile(`^\W*(\d+)\W+(?i:(ours|theirs|both))\b\W*(.*)$`)

// choicesOf reads the lines of an answer.
func choicesOf(answer string, n int) []string {
	out := make([]string, n)
	for line := range strings.Lines(answer) {
		m := choiceLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		if i, err := strconv.Atoi(m[1]); err == nil && i >= 1 && i <= n && out[i-1] == "" {
			out[i-1] = strings.TrimSpace(strings.ToLower(m[2]) + " " + excerpt.Clip(strings.Trim(m[3], ` ()"'.`), 100))
		}
	}
	return out
}
