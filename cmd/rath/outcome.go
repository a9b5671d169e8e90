package main

import (
	"context"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// finish prints how a run ended.
func (a *app) finish(ctx context.Context, s *system, id run.ID, seen watched, from blob.Digest, o *runOptions) error {
	if seen.result == nil {
		return a.stopped(id, seen, &o.nodeFlags)
	}
	r := *seen.result
	var diff string
	var to blob.Digest
	if !from.IsZero() && r.Session != "" {
		v, err := s.at(ctx, session.Ref{Key: session.Key{Tenant: s.Tenant(), ID: r.Session}, Version: r.Version})
		if err != nil {
			return err
		}
		if to = v.Placement().Head; to.IsZero() {
			to = from // no tool has opened the sandbox
		}
		if diff, err = unified(ctx, s.blobs(s.Tenant()), from, to); err != nil {
			return err
		}
	}
	if o.dossier != "" {
		if err := a.writeDossier(ctx, s, id, o.dossier); err != nil {
			return err
		}
	}
	applied := false
	if o.apply && r.State == run.Succeeded && diff != "" {
		if err := workspace.Apply(ctx, s.blobs(s.Tenant()), from, to, o.dir); err != nil {
			return err
		}
		applied = true
	}
	done, err := emitOne(a, struct {
		messages.Result
		Diff    string `json:"diff,omitempty"`
		Applied bool   `json:"applied,omitempty"`
	}{r, diff, applied})
	if !done {
		a.answer(&r, diff)
	}
	switch {
	case err != nil:
		return err
	case applied:
		a.remark("applied to %s", o.dir)
	case diff != "" && o.dir != "" && !o.apply:
		a.remark("nothing in %s was changed; --apply carries the diff there", o.dir)
	}
	if e := r.Err(); e != nil {
		code := stateCode(r.State)
		if r.Attempt == 0 { // never began: what is wrong is the task
			code = codeOf(e)
		}
		return &exitError{code, e}
	}
	return nil
}

// answer prints the answer and the diff of a run.
func (a *app) answer(r *messages.Result, diff string) {
	if r.State == run.Succeeded && r.Output != "" {
		a.out.Println(strings.TrimRight(term.Clean(r.Output), "\n"))
	}
	if diff != "" {
		if r.Output != "" && a.out.Terminal() {
			a.out.Println()
		}
		view.WriteDiff(a.out, diff)
	}
	if r.Attempt > 0 {
		a.remark("%s, %s, %s tokens   run %s", strings.ReplaceAll(string(r.State), "_", " "), view.Counted(r.Usage.Calls, "model call"), view.Thousands(r.Usage.Tokens()), r.Run)
	}
}

// stopped says what a person has to do about a run that is followed no more. o
// is as for resumeWith.
func (a *app) stopped(id run.ID, seen watched, o *nodeFlags) error {
	if seen.review != nil {
		a.review(id, seen.review)
		return silent(exitRefused)
	}
	if seen.stands {
		return fail(exitUnavailable, "run %s has not ended, and no node runs here: nothing more comes until %q or %q", id, a.hint("dev"), a.hint("resume", string(id)))
	}
	a.err.Println("parked: the run holds nothing while it waits. Answer, and let it go on:")
	for _, r := range seen.asked {
		if r.Kind == lineage.Review {
			a.person(r)
			continue
		}
		a.err.Println("  " + a.answerWith(r.Run, r.Asks()))
	}
	a.err.Println("  " + a.resumeWith(id, o))
	if o == nil {
		a.err.Println("  with " + asBegun)
	}
	return silent(exitRefused)
}

// person says that a run waits for a person, while it is followed, and how it
// goes on.
func (a *app) person(r lineage.Record) {
	who := "run " + string(r.Run)
	if r.Kind == lineage.Review {
		a.err.Note("")
		a.err.Println(who + " " + a.err.Paint(term.Yellow, "needs review:") + " " + term.Line(r.Reason, 400))
		a.decisions(r.Run, r.Revision)
		return
	}
	kind := r.Asks()
	what := ""
	for _, w := range r.Waits {
		if w.Kind == kind && w.Title != "" {
			what = ": " + term.Line(w.Title, 200)
		}
	}
	a.err.Note("")
	a.err.Println(who + " waits for " + kind + what)
	a.err.Println("answer with\n  " + a.answerWith(r.Run, kind))
}

// review says what a person has to decide.
func (a *app) review(id run.ID, r *lineage.Record) {
	a.err.Println(a.err.Paint(term.Yellow, "needs review:") + " " + term.Line(r.Reason, 400))
	a.decisions(id, r.Revision)
}

// decisions says how to decide about a run that stopped: at a call, or, with the
// revision that it was recorded under, because the code is another one.
func (a *app) decisions(id run.ID, revision string) {
	flags := []string{"--happened", "--again", "--fail"}
	if revision != "" {
		flags[0] = "--pin"
	}
	a.err.Println("a person has to decide:")
	for _, d := range flags {
		a.err.Println("  " + a.hint("resolve", string(id), d, "--reason", "TEXT"))
	}
}
