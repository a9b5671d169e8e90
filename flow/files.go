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

// Resolutions of conflicting changes to a file by branches. In a text file, each of them
// except KeepBoth applies to the conflicting lines alone.
const (
	TakeOurs    = "ours"   // the merge so far stays, in the order of the branches
	TakeTheirs  = "theirs" // the later branch wins
	TakeInOrder = "order"  // the branch that comes first in Verdict.Take wins
	KeepBoth    = "both"   // the later file is stored beside the other, as "path.<branch>"
)

// WithFiles is a policy that takes the outcomes of p and merges the files of all of them,
// three-way against their common base. The judge sees the conflicting lines and resolves
// them, on a fork of the base as with [Agent.Judge]. onConflict, one of the constants,
// resolves the conflicts that the judge leaves open, and all conflicts if judge is nil;
// "" is KeepBoth. The record of the merge names each conflict and its resolution.
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

// mergeFiles merges the files of the outcomes that a verdict takes, and asks its judge
// until every conflict is resolved.
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

// judged asks a judge about conflicts and returns, for each, the choice and, after a
// space, the reason; "" for a conflict that the answer does not resolve.
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
