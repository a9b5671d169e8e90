package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
	"github.com/rathcluster/rath/workspace"
)

const (
	askedAtOnce   = 16  // conflicts in one question to a judge
	askedInAll    = 128 // conflicts that a judge is asked about in one merge
	toldConflicts = 100 // conflicts that the record of a merge names
)

// filesMerged is the record of how the files of branches became one.
type filesMerged struct {
	// Head is the result; zero while conflicts are open, or where there are no files.
	Head      blob.Digest         `json:"head,omitzero"`
	Conflicts []manifest.Conflict `json:"conflicts,omitempty"` // that are decided, without their lines
	More      int                 `json:"more,omitempty"`      // of them
	Open      []manifest.Conflict `json:"open,omitempty"`      // a judge is asked about
}

func (v verdict) mergesFiles() bool { return v.Files != "" || v.FileJudge != nil }

// MergeFiles is what flow.Merge needs for a verdict that merges files.
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
	var m filesMerged
	err = st.make(func() error { return st.decode(&m) }, func() (d journal.StepCompleted, err error) {
		m, err = st.ex.files.filesOf(st.ctx, all, v, decider{rule: v.Files, judge: v.FileJudge != nil, asked: in.asked, choices: choices})
		if err != nil {
			return d, came(fmt.Errorf("flow: merge files: %w", err))
		}
		d.Summary = excerpt.Clip(m.summary(v), 1<<10)
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

// summary names the conflicts and what decided them.
func (m *filesMerged) summary(v verdict) string {
	var text strings.Builder
	text.WriteString("merges files of " + excerpt.Count(len(v.Take), "branch"))
	sep := ": "
	for _, c := range m.Conflicts {
		text.WriteString(sep + c.String())
		sep = "; "
	}
	if len(m.Open) > 0 {
		text.WriteString("; asks about " + excerpt.Count(len(m.Open), "conflict"))
	}
	return text.String()
}

// filesOf merges the files of the outcomes that a verdict takes over what they were made
// of. Outcomes that changed none make no difference.
func (f *files) filesOf(ctx context.Context, all *flow.Joined, v verdict, d decider) (m filesMerged, err error) {
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
		if ours.Head.IsZero() { // no tool had opened the sandbox before they parted
			ours.Head = side.Base
		}
		sides = append(sides, side)
	}
	if ours.Head.IsZero() && !slices.ContainsFunc(sides, func(s manifest.Side) bool { return !s.Head.IsZero() }) {
		return m, nil
	}
	return f.mergeSides(ctx, ours, sides, &d)
}

// mergeSides merges sides into ours, within what a session may have.
func (f *files) mergeSides(ctx context.Context, ours manifest.Side, sides []manifest.Side, d *decider) (m filesMerged, err error) {
	b := f.ex.boxes.blobs()
	t, conflicts, err := manifest.Merge(ctx, b, ours, sides, d.choose)
	if err != nil {
		return m, err
	}
	m.Open = d.open
	for _, c := range conflicts {
		switch c.Detail = ""; {
		case c.Choice == manifest.Undecided:
		case len(m.Conflicts) == toldConflicts:
			m.More++
		default:
			m.Conflicts = append(m.Conflicts, c)
		}
	}
	if len(m.Open) > 0 {
		return m, nil
	}
	if m.Head, err = t.Store(ctx, b); err != nil {
		return m, err
	}
	return m, workspace.Check(ctx, b, m.Head, f.ex.rt.Workspaces.Limits)
}

// cameWith returns the files that a branch of a session began with: those of the session
// where they parted or, where no tool had opened the sandbox by then, those that the
// branch opened it with.
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

// decider decides conflicts by what a judge chose, or by a rule.
type decider struct {
	rule    string
	judge   bool
	asked   []manifest.Conflict // the judge was asked about
	choices []string            // for them
	open    []manifest.Conflict // the judge is to be asked about
}

func (d *decider) choose(c manifest.Conflict) (manifest.Choice, string) {
	rule := manifest.Choice(cmp.Or(d.rule, flow.KeepBoth))
	by := "policy " + string(rule)
	if rule == flow.TakeInOrder {
		rule = manifest.TakeOurs // they are merged in that order
	}
	if c.Kind == manifest.GitConflict { // the copy of each branch, which none can merge
		return manifest.TakeOurs, "policy ours, as it is taken as a whole"
	}
	if !d.judge {
		return rule, by
	}
	for i, a := range d.asked {
		if a.Path != c.Path || a.Theirs != c.Theirs || i >= len(d.choices) {
			continue
		}
		word, why, _ := strings.Cut(d.choices[i], " ")
		switch choice := manifest.Choice(word); choice {
		case manifest.TakeOurs, manifest.TakeTheirs, manifest.KeepBoth:
			if why != "" {
				why = " " + fmt.Sprintf("%q", why)
			}
			return choice, "judge" + why
		}
		return rule, by + ", as the judge chose none"
	}
	if len(d.asked)+len(d.open) >= askedInAll {
		return rule, by + ", as there are too many for the judge"
	}
	// What comes of a path depends on what was decided about it before.
	waits := slices.ContainsFunc(d.open, func(a manifest.Conflict) bool { return a.Path == c.Path })
	if !waits && len(d.open) < askedAtOnce {
		d.open = append(d.open, c)
	}
	return manifest.Undecided, ""
}

// placement is where the work goes on after a merge of files.
func (m *filesMerged) placement(base session.Session, taken []session.Session) session.Placement {
	p := base.Placement()
	for _, s := range taken {
		if p.Backend == "" || p.Isolation == "" {
			p = s.Placement()
		}
	}
	if p.Backend != "" && !m.Head.IsZero() {
		p.Head = m.Head
	}
	return p
}
