package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func (a *app) impactCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "impact WHAT",
		Short: "Say what a chunk, a tool result or another step touched afterwards",
		Long: `Says what came after something and could see it: the later steps of its session,
the forks, copies and merges that include it, the runs on those, the files that
they changed, the notes that they wrote, and later searches of the same memories
elsewhere. A merge may leave out rows of a branch and a summary what it sums up:
this is what may have been touched. "why" asks the other way round.`,
		Example: `  rath impact 7f3a:5       version 5 of a session
  rath impact 7f3a#3       row 3 of a session, counted from 0
  rath impact @last/2.0    a tool call of the last run
  rath impact 7f3a:5 -o json | jq .files`,
		Args: exactly(1, "one thing"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(s *system) error { return a.impact(cmd.Context(), s, args[0], all) })
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all of each list, not only the first rows")
	return cmd
}

// impactRows is how many rows of each list are shown without --all.
const impactRows = 20

func (a *app) impact(ctx context.Context, s *system, text string, all bool) error {
	t, err := parseThing(text)
	if err != nil {
		return err
	}
	f, err := s.findThing(ctx, t, true)
	if err != nil {
		return err
	}
	var i lineage.Impact
	switch {
	case f.path != "":
		return fail(exitUsage, "%q is a file: ask for the step that changed it, as \"why %s\" tells it", text, text)
	case f.row >= 0:
		var r session.Ref
		if r, err = s.chunkOf(ctx, f); err == nil {
			i, err = f.graph.Impact(r.Key, r.Version)
		}
	case f.call != nil:
		i, err = f.graph.ImpactOfStep(s.Tenant(), f.call.Run, f.call.Step)
	case f.step != "":
		i, err = f.graph.ImpactOfStep(s.Tenant(), f.run.Run, f.step)
	case t.version > 0:
		i, err = f.graph.Impact(f.ref(s.Tenant()).Key, t.version)
	default:
		return fail(exitUsage, "%q is all of a session or run: name a version, a row or a step, such as %s:3, %s#0 or %s/0", text, text, text, text)
	}
	if err != nil {
		return err
	}
	out := impactOf(i)
	if s.log != nil {
		if err := out.files(ctx, s.blobs(s.Tenant()), i.Files); err != nil {
			return err
		}
	}
	if done, err := emitOne(a, out); done {
		return err
	}
	a.tellImpact(text, out, all)
	return nil
}

// impactInfo is the answer of impact.
type impactInfo struct {
	What     string          `json:"what"`
	Session  session.ID      `json:"session"`
	Version  session.Version `json:"version"`
	Commit   uint64          `json:"commit"`
	Run      run.ID          `json:"run,omitempty"`
	Step     run.Path        `json:"step,omitempty"`
	Sessions []impactSession `json:"sessions"`
	Runs     []impactRun     `json:"runs"`
	Steps    []impactStep    `json:"steps"`
	Files    []impactFile    `json:"files"`
	Written  []impactStep    `json:"written"`
	Recalls  []impactStep    `json:"recalls"`
}

type impactSession struct {
	Session session.ID      `json:"session"`
	From    session.Version `json:"from"`          // version from which it includes it
	Via     lineage.Kind    `json:"via,omitempty"` // "" where it was made
	Parent  session.ID      `json:"parent,omitempty"`
	Name    string          `json:"name,omitempty"`
	State   string          `json:"state"`
}

type impactRun struct {
	Run      run.ID    `json:"run"`
	State    run.State `json:"state"`
	Workflow string    `json:"workflow,omitempty"`
	First    run.Path  `json:"first"` // step
	Steps    int       `json:"steps"`
}

type impactStep struct {
	Session session.ID      `json:"session"`
	Version session.Version `json:"version"`
	Run     run.ID          `json:"run,omitempty"`
	Step    run.Path        `json:"step,omitempty"`
	Kind    lineage.Kind    `json:"kind"`
	Name    string          `json:"name,omitempty"`
	Did     string          `json:"did"`
	Time    time.Time       `json:"time"`
}

// impactFile is what steps did to a file, or to files that cannot be read: then
// the path is empty and the heads stand for it.
type impactFile struct {
	Path    string     `json:"path,omitempty"`
	Added   int        `json:"added"`
	Removed int        `json:"removed"`
	Steps   []run.Path `json:"steps"`
	Before  string     `json:"head_before,omitempty"`
	After   string     `json:"head_after,omitempty"`
}

func impactOf(i lineage.Impact) *impactInfo {
	out := &impactInfo{
		What: i.Record.Summary, Session: i.Of.Session, Version: i.Of.Version, Commit: i.Of.Commit, Run: i.Record.Run, Step: i.Record.Step,
		Sessions: []impactSession{}, Runs: []impactRun{}, Steps: stepsOf(i.Steps), Files: []impactFile{}, Written: stepsOf(i.Written), Recalls: stepsOf(i.Recalls),
	}
	for _, r := range i.Sessions {
		out.Sessions = append(out.Sessions, impactSession{r.Session.Key.ID, r.Version, r.Via, r.From, r.Session.Name, r.Session.Disposition})
	}
	for _, r := range i.Runs {
		out.Runs = append(out.Runs, impactRun{r.Run.ID, r.Run.State, r.Run.Workflow, r.First.Step, r.Steps})
	}
	for _, c := range i.Files {
		out.Files = append(out.Files, impactFile{Steps: []run.Path{c.Step}, Before: c.Before, After: c.After})
	}
	return out
}

func stepsOf(in []lineage.Record) []impactStep {
	out := make([]impactStep, len(in))
	for i := range in {
		r := &in[i]
		out[i] = impactStep{r.Session, r.Version, r.Run, r.Step, r.Kind, r.Name, r.Summary, r.When()}
	}
	return out
}

// files names the files that changed, where their contents can be read.
func (o *impactInfo) files(ctx context.Context, blobs blob.Store, changes []lineage.HeadChange) error {
	all, err := fileChanges(ctx, blobs, changes)
	if errors.Is(err, blob.ErrNotFound) {
		return nil // the heads stand for what is not stored any more
	}
	if err != nil {
		return err
	}
	o.Files = []impactFile{}
	for _, c := range all {
		n := slices.IndexFunc(o.Files, func(f impactFile) bool { return f.Path == c.Path })
		if n < 0 {
			n = len(o.Files)
			o.Files = append(o.Files, impactFile{Path: c.Path})
		}
		f := &o.Files[n]
		f.Added, f.Removed = f.Added+c.Added, f.Removed+c.Removed
		if !slices.Contains(f.Steps, c.by.Step) {
			f.Steps = append(f.Steps, c.by.Step)
		}
	}
	slices.SortFunc(o.Files, func(a, b impactFile) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

func (a *app) tellImpact(text string, o *impactInfo, all bool) {
	at := fmt.Sprintf("%s:%d", o.Session, o.Version)
	if o.Step != "" {
		at += ", step " + string(o.Step)
	}
	a.out.Println(a.out.Paint(term.Bold, term.Line(text, 60)))
	a.out.Println("  " + term.Line(o.What, a.out.Width()-2))
	a.out.Println(a.out.Dim("  " + at))
	a.out.Println()
	a.out.Printf("may have touched %s of %s in %s, %s and %s\n", counted(int64(len(o.Steps)), "step"), counted(int64(len(o.Runs)), "run"),
		counted(int64(len(o.Sessions)), "session"), counted(int64(len(o.Files)), "file"), counted(int64(len(o.Written)), "note"))
	rows := make([][]string, 0, len(o.Sessions))
	for _, s := range o.Sessions {
		how := "made here"
		if s.Via != "" {
			how = string(s.Via) + " from " + lineage.Short(s.Parent)
			if s.Via == lineage.Adopted || s.Via == lineage.Merged {
				how = string(s.Via) + " " + lineage.Short(s.Parent)
			}
		}
		if s.Name != "" {
			how += " (" + term.Line(s.Name, 30) + ")"
		}
		rows = append(rows, []string{lineage.Short(s.Session), fmt.Sprint(s.From), how, s.State})
	}
	a.list("session", all, "SESSION", []string{"FROM", "", "STATE"}, rows)
	rows = rows[:0]
	shortID := shortRuns(runIDs(o.Runs, func(r *impactRun) run.ID { return r.Run }))
	for _, r := range o.Runs {
		rows = append(rows, []string{shortID(r.Run), string(r.State), r.Workflow, string(r.First), fmt.Sprint(r.Steps)})
	}
	a.list("run", all, "RUN", []string{"STATE", "WORKFLOW", "FROM", "STEPS"}, rows)
	rows = rows[:0]
	for _, f := range o.Files {
		name := f.Path
		if name == "" {
			name = fmt.Sprintf("%.12s -> %.12s", f.Before, f.After)
		}
		rows = append(rows, []string{term.Line(name, 40), fmt.Sprintf("+%d -%d", f.Added, f.Removed), pathsOf(f.Steps)})
	}
	a.list("file", all, "FILE", []string{"LINES", "STEPS"}, rows)
	rows = rows[:0]
	for _, w := range o.Written {
		rows = append(rows, []string{term.Line(cmp.Or(w.Name, "memory"), 20), string(w.Step), term.Line(w.Did, 50)})
	}
	for _, r := range o.Recalls {
		rows = append(rows, []string{term.Line(cmp.Or(r.Name, "memory"), 20), string(r.Step), term.Line("may have been found by "+lineage.Short(r.Session)+": "+r.Did, 50)})
	}
	a.list("note", all, "MEMORY", []string{"STEP", ""}, rows)
	rows = rows[:0]
	for _, s := range o.Steps {
		rows = append(rows, []string{lineage.Short(s.Session), fmt.Sprint(s.Version), string(s.Step), term.Line(s.Did, max(a.out.Width()-28, 30))})
	}
	a.list("step", all, "SESSION", []string{"VERSION", "STEP", ""}, rows)
}

// list writes a table after an empty line, or nothing; without all its beginning.
func (a *app) list(noun string, all bool, first string, headers []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	more := len(rows) - impactRows
	if all || more < 2 {
		more = 0
	}
	a.out.Println()
	a.out.Rows(append([]string{first}, headers...), rows[:len(rows)-more])
	if more > 0 {
		a.out.Println(a.out.Dim("... " + counted(int64(more), "more "+noun) + "; --all shows them"))
	}
}

func pathsOf(steps []run.Path) string {
	var out []string
	for _, s := range steps[:min(len(steps), 4)] {
		out = append(out, string(s))
	}
	if len(steps) > 4 {
		out = append(out, fmt.Sprintf("%d more", len(steps)-4))
	}
	return strings.Join(out, ", ")
}
