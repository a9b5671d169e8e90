package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/session"
)

// SinceAncestor takes the additions of every branch that succeeded, one branch after the
// other; of a compressed branch it takes all chunks.
func SinceAncestor() Policy { return sinceAncestor{} }

type sinceAncestor struct{}

func (sinceAncestor) Decide(_ context.Context, j *Joined) (Verdict, error) {
	return Verdict{Take: j.Succeeded()}, nil
}

// Pick takes the outcome at an index; -1 is the first that succeeded.
func Pick(i int) Policy { return pick(i) }

type pick int

func (p pick) Decide(_ context.Context, j *Joined) (Verdict, error) {
	i := int(p)
	if all := j.Succeeded(); i == -1 && len(all) > 0 {
		i = all[0]
	}
	if i < 0 || i >= len(j.Outcomes) {
		return Verdict{}, fmt.Errorf("flow: pick of outcome %d of %d: %w", i, len(j.Outcomes), ErrNoOutcome)
	}
	return Verdict{Take: []int{i}, Adopt: true}, nil
}

// PickBest takes the outcome that a judge chooses. judge returns the index of the best of
// the successful outcomes in j.Outcomes, and the reasons by outcome.
func PickBest(judge func(ctx context.Context, j *Joined) (best int, reasons []string, err error)) Policy {
	return pickBest{judge}
}

type pickBest struct {
	judge func(context.Context, *Joined) (int, []string, error)
}

func (p pickBest) Decide(ctx context.Context, j *Joined) (Verdict, error) {
	if p.judge == nil {
		return Verdict{}, errors.New("flow: PickBest without a function that judges: give it one, such as the Judge of a flow.Agent")
	}
	all := j.Succeeded()
	if len(all) == 0 {
		return Verdict{}, ErrNoOutcome
	}
	best, reasons, err := p.judge(ctx, j)
	if err != nil {
		return Verdict{}, err
	}
	if !slices.Contains(all, best) {
		return Verdict{}, fmt.Errorf("flow: the judge chose outcome %d, which did not succeed", best)
	}
	return Verdict{Take: []int{best}, Adopt: true, Reasons: reasons}, nil
}

// PickHighest takes the outcome with the highest score, the first one of equal scores. It
// calls score once for each outcome that succeeded, in their order and within the run, so
// that calls such as [Do] or [Ask] on a [Fork] are steps. The reasons are the scores,
// each with the first line of why.
func PickHighest(score func(ctx context.Context, o Outcome) (score int, why string, err error)) Policy {
	return PickBest(func(ctx context.Context, j *Joined) (int, []string, error) {
		if score == nil {
			return 0, nil, errors.New("flow: PickHighest without a function that scores: give it one")
		}
		best, highest := -1, 0
		reasons := make([]string, len(j.Outcomes))
		for _, i := range j.Succeeded() {
			n, why, err := score(ctx, j.Outcomes[i])
			if err != nil {
				return 0, nil, err
			}
			reasons[i] = fmt.Sprintf("scores %d", n)
			if why = excerpt.FirstLine(why); why != "" {
				reasons[i] += ": " + excerpt.Clip(why, 180)
			}
			if best < 0 || n > highest {
				best, highest = i, n
			}
		}
		return best, reasons, nil
	})
}

// Judge makes the agent choose an outcome: PickBest(a.Judge) takes its choice. The agent
// works on a fork of the base, so that its deliberation does not become part of the
// session. The first integer of its answer is the index of the outcome, the rest is the
// reason.
func (a *Agent) Judge(ctx context.Context, j *Joined) (best int, reasons []string, err error) {
	s, err := Fork(ctx, j.Base)
	if err != nil {
		return 0, nil, err
	}
	out, err := a.Forward(ctx, s.With(session.UserText(menu(j))))
	if err != nil {
		return 0, nil, rejectUndecided(ctx, err, s)
	}
	answer := out.Text()
	if err := Reject(ctx, out, journal.OnlyJudged); err != nil {
		return 0, nil, err
	}
	reasons = make([]string, len(j.Outcomes))
	for i := range reasons {
		reasons[i] = excerpt.Clip(excerpt.FirstLine(answer), 200)
	}
	return excerpt.FirstInteger(answer), reasons, nil
}

func menu(j *Joined) string {
	var b strings.Builder
	b.WriteString("These are the results of branches that worked on the same task. Answer with the number of the best one, then why in one line.")
	for _, i := range j.Succeeded() {
		fmt.Fprintf(&b, "\n\n%d. %s:\n%s", i, j.Outcomes[i].Name, excerpt.Clip(j.Outcomes[i].Session.Text(), 8<<10))
	}
	return b.String()
}

// Summarise adds a summary of the branches that succeeded to the base instead of all
// their chunks. The compressor's prompt and provider make it, on a fork of the base that
// is rejected afterwards.
func Summarise(c *Compressor) Policy { return summarise{c} }

type summarise struct{ c *Compressor }

func (p summarise) Decide(ctx context.Context, j *Joined) (Verdict, error) {
	if p.c == nil {
		return Verdict{}, errors.New("flow: Summarise without a compressor: give it one, such as &flow.Compressor{}")
	}
	all := j.Succeeded()
	if len(all) == 0 {
		return Verdict{}, ErrNoOutcome
	}
	s, err := Fork(ctx, j.Base)
	if err != nil {
		return Verdict{}, err
	}
	for _, i := range all {
		s = s.With(session.UserText(fmt.Sprintf("Result of branch %s:\n%s", j.Outcomes[i].Name, j.Outcomes[i].Session.Text())))
	}
	short, err := p.c.Forward(ctx, s)
	if err != nil {
		return Verdict{}, rejectUndecided(ctx, err, s)
	}
	text := ""
	for _, c := range short.Chunks() {
		text = c.Text()
	}
	for _, made := range []session.Session{short, s} {
		if err := Reject(ctx, made, journal.OnlySummarised); err != nil {
			return Verdict{}, err
		}
	}
	return Verdict{Take: all, Text: text}, nil
}
