package view

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Impact is the answer of impact.
type Impact struct {
	What    string          `json:"what"`
	Session session.ID      `json:"session"`
	Version session.Version `json:"version"`
	Commit  uint64          `json:"commit"`
	Run     run.ID          `json:"run,omitempty"`
	Step    run.Path        `json:"step,omitempty"`
	// Changed are the files that the step, or a call of it, changed. Uses are the later
	// calls that used them. Commands are other later calls that ran a program, which may
	// have read them.
	Changed  []ImpactFile      `json:"changed,omitempty"`
	Uses     []ImpactUse       `json:"uses,omitempty"`
	Commands []ImpactStep      `json:"commands,omitempty"`
	Sessions []lineage.Reach   `json:"sessions"`
	Runs     []lineage.Touched `json:"runs"`
	Steps    []ImpactStep      `json:"steps"`
	Files    []ImpactFile      `json:"files"`
	Written  []ImpactStep      `json:"written"`
	Recalls  []ImpactStep      `json:"recalls"`

	changes []FileChange // of all steps, once NameFiles has read them
}

type ImpactStep struct {
	Session session.ID      `json:"session"`
	Version session.Version `json:"version"`
	Run     run.ID          `json:"run,omitempty"`
	Step    run.Path        `json:"step,omitempty"`
	Kind    messages.Kind   `json:"kind"`
	Name    string          `json:"name,omitempty"`
	Did     string          `json:"did"`
	Time    time.Time       `json:"time"`
}

// ImpactFile is the change of a file by steps, or of files that cannot be read: then the
// path is empty and the heads identify the change.
type ImpactFile struct {
	Path    string     `json:"path,omitempty"`
	Added   int        `json:"added"`
	Removed int        `json:"removed"`
	Steps   []run.Path `json:"steps"`
	Before  string     `json:"head_before,omitempty"`
	After   string     `json:"head_after,omitempty"`
}

// ImpactOf returns the answer for an impact in the graph. Its files are the heads of
// workspaces until NameFiles reads them.
func ImpactOf(i lineage.Impact) *Impact {
	out := &Impact{
		What: i.Record.Summary, Session: i.Of.Session, Version: i.Of.Version, Commit: i.Of.Commit, Run: i.Record.Run, Step: i.Record.Step,
		Sessions: i.Sessions, Runs: append([]lineage.Touched{}, i.Runs...), Steps: stepsOf(i.Steps), Files: []ImpactFile{}, Written: stepsOf(i.Written), Recalls: stepsOf(i.Recalls),
	}
	for _, c := range i.Files {
		out.Files = append(out.Files, ImpactFile{Steps: []run.Path{c.Step}, Before: c.HeadFrom, After: c.Head})
	}
	return out
}

func stepsOf(in []messages.Record) []ImpactStep {
	out := make([]ImpactStep, len(in))
	for i := range in {
		r := &in[i]
		out[i] = ImpactStep{r.Session, r.Version, r.Run, r.Step, r.Kind, r.Name, r.Summary, r.When()}
	}
	return out
}

// NameFiles names the changed files whose contents can be read.
func (o *Impact) NameFiles(ctx context.Context, blobs blob.Store, changes []messages.Record) error {
	all, err := FileChanges(ctx, blobs, changes)
	if errors.Is(err, blob.ErrNotFound) {
		return nil // the heads remain for files that are no longer stored
	}
	if err != nil {
		return err
	}
	o.changes = all
	o.Files = filesOf(all, func(*FileChange) bool { return true })
	if o.Step != "" {
		o.Changed = filesOf(all, func(c *FileChange) bool { return c.By.Run == o.Run && c.By.Step.Within(o.Step) })
	}
	return nil
}

// filesOf groups some changes by file.
func filesOf(all []FileChange, of func(c *FileChange) bool) []ImpactFile {
	out := []ImpactFile{}
	for i := range all {
		c := &all[i]
		if !of(c) {
			continue
		}
		n := slices.IndexFunc(out, func(f ImpactFile) bool { return f.Path == c.Path })
		if n < 0 {
			n = len(out)
			out = append(out, ImpactFile{Path: c.Path})
		}
		f := &out[n]
		f.Added, f.Removed = f.Added+c.Added, f.Removed+c.Removed
		if !slices.Contains(f.Steps, c.By.Step) {
			f.Steps = append(f.Steps, c.By.Step)
		}
	}
	slices.SortFunc(out, func(a, b ImpactFile) int { return strings.Compare(a.Path, b.Path) })
	return out
}
