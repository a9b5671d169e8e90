package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/filemerge"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

func (v verdict) mergesFiles() bool { return v.Files != "" || v.FileJudge != nil }

// MergeFiles merges files for flow.Merge, if the verdict has a rule or a judge.
func (p *place) MergeFiles(ctx context.Context, all *flow.Joined, of any, decided flow.Verdict, choices []string) (open []string, err error) {
	v := verdict(decided)
	if err := v.check(all); err != nil {
		return nil, err
	}
	in, ok := of.(*fanOutState)
	if !ok {
		return nil, errors.New("flow: a merge of what FanOut did not return")
	}
	if len(choices) == 0 {
		in.asked = nil
	}
	args := []string{string(in.path), v.Files, all.Base.Ref().String()}
	for _, i := range v.Take {
		args = append(args, all.Outcomes[i].Session.Ref().String())
	}
	st, err := p.begin(ctx, journal.StepDo, "merge files", session.Session{}, false, tool.ReadOnly.String(), append(args, choices...)...)
	if err != nil {
		return nil, err
	}
	defer st.end()
	var m filemerge.Result
	err = st.make(func() error { return st.decode(&m) }, func() (d journal.StepCompleted, err error) {
		m, err = st.ex.files.filesOf(st.ctx, all, v, filemerge.Decider{Rule: v.Files, Judge: v.FileJudge != nil, Asked: in.asked, Choices: choices})
		if err != nil {
			return d, came(fmt.Errorf("flow: merge files: %w", err))
		}
		d.Summary = excerpt.Clip(m.Summary(len(v.Take)), 1<<10)
		d.Value, err = canonical.Marshal(m)
		return d, err
	})
	if err != nil {
		return nil, err
	}
	in.files = m
	in.asked = append(in.asked, m.Open...)
	for _, c := range m.Open {
		open = append(open, fmt.Sprintf("%s (%s): ours is %s, theirs is %s\n%s", c.Path, c.Kind, c.Ours, c.Theirs, c.Detail))
	}
	return open, nil
}

// filesOf merges the files of the outcomes that a verdict takes, against their common
// base. Outcomes without changes make no difference.
func (f *files) filesOf(ctx context.Context, all *flow.Joined, v verdict, d filemerge.Decider) (m filemerge.Result, err error) {
	order := slices.Clone(v.Take)
	if v.Files != flow.TakeInOrder {
		slices.Sort(order)
	}
	ours := manifest.Side{Name: "the session", Head: all.Base.Placement().Head}
	var sides []manifest.Side
	for _, i := range order {
		o := all.Outcomes[i]
		side := manifest.Side{Name: o.Name, Head: o.Session.Placement().Head}
		_, at, ok := session.CommonLen(all.Base, o.Session)
		if !ok {
			return m, fmt.Errorf("branch %s and session %s have no ancestor in common", o.Name, all.Base.Key())
		}
		if side.Base, err = f.cameWith(ctx, at, o.Session); err != nil {
			return m, err
		}
		if ours.Head.IsZero() { // no tool had opened the sandbox before the fork
			ours.Head = side.Base
		}
		sides = append(sides, side)
	}
	if ours.Head.IsZero() && !slices.ContainsFunc(sides, func(s manifest.Side) bool { return !s.Head.IsZero() }) {
		return m, nil
	}
	return d.Merge(ctx, f.ex.boxes.blobs(), f.ex.rt.Workspaces.Limits, ours, sides)
}

// cameWith returns the files that a branch of a session began with: those of the session
// at the fork or, if no tool had opened the sandbox by then, those with which the branch
// opened it.
func (f *files) cameWith(ctx context.Context, at session.Ref, branch session.Session) (blob.Digest, error) {
	for {
		from, err := f.ex.rt.Values.At(ctx, at)
		if err != nil {
			return blob.Digest{}, err
		}
		if head := from.Placement().Head; !head.IsZero() || at.Version >= branch.Ref().Version {
			return head, nil
		}
		at = session.Ref{Key: branch.Key(), Version: at.Version + 1}
	}
}
