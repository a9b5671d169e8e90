package filemerge

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

const (
	askedAtOnce   = 16  // conflicts in one question to a judge
	askedInAll    = 128 // conflicts that a judge is asked about in one merge
	toldConflicts = 100 // conflicts that the record of a merge names
)

// Result is the record of a merge of the files of branches.
type Result struct {
	// Head is the result; zero while conflicts are open, or without files.
	Head      blob.Digest         `json:"head,omitzero"`
	Conflicts []manifest.Conflict `json:"conflicts,omitempty"` // resolved, without their lines
	More      int                 `json:"more,omitempty"`      // of them
	Open      []manifest.Conflict `json:"open,omitempty"`      // for a judge to resolve
}

// Summary names the conflicts and their resolutions.
func (m *Result) Summary(branches int) string {
	var text strings.Builder
	text.WriteString("merges files of " + excerpt.Counted(branches, "branch"))
	sep := ": "
	for _, c := range m.Conflicts {
		text.WriteString(sep + c.String())
		sep = "; "
	}
	if len(m.Open) > 0 {
		text.WriteString("; asks about " + excerpt.Counted(len(m.Open), "conflict"))
	}
	return text.String()
}

// Merge merges sides into ours, within the limits of a session.
func (d *Decider) Merge(ctx context.Context, b blob.Store, limits workspace.Limits, ours manifest.Side, sides []manifest.Side) (m Result, err error) {
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
	return m, workspace.Check(ctx, b, m.Head, limits)
}

// Amend adds to the body of a call's result the files that both its workflow and others
// changed with conflicts.
func (m *Result) Amend(body json.RawMessage, name string) json.RawMessage {
	const shown = 20
	note := struct {
		More  int      `json:"more,omitempty"`
		Note  string   `json:"note"`
		Paths []string `json:"paths"`
	}{
		More: m.More,
		Note: "these files were changed here, too, in ways that exclude each other: what was here is at the path, and what this call made of it beside it, as path." + name,
	}
	for i, c := range m.Conflicts {
		if i == shown {
			note.More += len(m.Conflicts) - shown
			break
		}
		note.Paths = append(note.Paths, excerpt.Clip(c.String(), 300))
	}
	text, err := canonical.Marshal(note)
	if err != nil { // it holds strings, which always encode
		panic(err)
	}
	return lease.Beside(body, "conflicts", text)
}

// Decider resolves conflicts by a judge's choices, or by a rule.
type Decider struct {
	Rule    string
	Judge   bool
	Asked   []manifest.Conflict // shown to the judge
	Choices []string            // for them
	open    []manifest.Conflict // to show to the judge
}

func (d *Decider) choose(c manifest.Conflict) (manifest.Choice, string) {
	rule := manifest.Choice(cmp.Or(d.Rule, flow.KeepBoth))
	by := "policy " + string(rule)
	if rule == flow.TakeInOrder {
		rule = manifest.TakeOurs // they are merged in that order
	}
	if c.Kind == manifest.GitConflict { // each branch has its own copy, which cannot be merged
		return manifest.TakeOurs, "policy ours, as it is taken as a whole"
	}
	if !d.Judge {
		return rule, by
	}
	for i, a := range d.Asked {
		if a.Path != c.Path || a.Theirs != c.Theirs || i >= len(d.Choices) {
			continue
		}
		word, why, _ := strings.Cut(d.Choices[i], " ")
		switch choice := manifest.Choice(word); choice {
		case manifest.TakeOurs, manifest.TakeTheirs, manifest.KeepBoth:
			if why != "" {
				why = " " + fmt.Sprintf("%q", why)
			}
			return choice, "judge" + why
		}
		return rule, by + ", as the judge chose none"
	}
	if len(d.Asked)+len(d.open) >= askedInAll {
		return rule, by + ", as there are too many for the judge"
	}
	// Later conflicts of a path depend on the resolution of earlier ones.
	waits := slices.ContainsFunc(d.open, func(a manifest.Conflict) bool { return a.Path == c.Path })
	if !waits && len(d.open) < askedAtOnce {
		d.open = append(d.open, c)
	}
	return manifest.Undecided, ""
}

// Placement returns the placement after a merge of files.
func (m *Result) Placement(base session.Session, taken []session.Session) session.Placement {
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
