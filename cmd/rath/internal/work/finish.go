package work

import (
	"context"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/evidence"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/cmd/rath/internal/inspect"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// finish prints how a run ended.
func finish(ctx context.Context, a *app.App, s *app.System, id run.ID, seen follow.Outcome, from blob.Digest, o *runOptions) error {
	if seen.Result == nil {
		return follow.Stopped(a, id, seen, &o.NodeFlags)
	}
	r := *seen.Result
	var diff string
	var to blob.Digest
	if !from.IsZero() && r.Session != "" {
		v, err := s.At(ctx, session.Ref{Key: session.Key{Tenant: s.Tenant(), ID: r.Session}, Version: r.Version})
		if err != nil {
			return err
		}
		if to = v.Placement().Head; to.IsZero() {
			to = from // no tool has opened the sandbox
		}
		if diff, err = inspect.Unified(ctx, s.Blobs(s.Tenant()), from, to); err != nil {
			return err
		}
	}
	if o.dossier != "" {
		if err := evidence.WriteDossier(ctx, a, s, id, o.dossier); err != nil {
			return err
		}
	}
	applied := false
	if o.apply && r.State == run.Succeeded && diff != "" {
		if err := workspace.Apply(ctx, s.Blobs(s.Tenant()), from, to, o.dir); err != nil {
			return err
		}
		applied = true
	}
	done, err := app.EmitOne(a, struct {
		messages.Result
		Diff    string `json:"diff,omitempty"`
		Applied bool   `json:"applied,omitempty"`
	}{r, diff, applied})
	if !done {
		writeAnswer(a, &r, diff)
	}
	switch {
	case err != nil:
		return err
	case applied:
		a.Remark("applied to %s", o.dir)
	case diff != "" && o.dir != "" && !o.apply:
		a.Remark("nothing in %s was changed; --apply carries the diff there", o.dir)
	}
	if e := r.Err(); e != nil {
		code := app.StateCode(r.State)
		if r.Attempt == 0 { // never began: what is wrong is the task
			code = app.CodeOf(e)
		}
		return app.WithCode(code, e)
	}
	return nil
}

// writeAnswer prints the answer and the diff of a run.
func writeAnswer(a *app.App, r *messages.Result, diff string) {
	if r.State == run.Succeeded && r.Output != "" {
		a.Out.Println(strings.TrimRight(term.Clean(r.Output), "\n"))
	}
	if diff != "" {
		if r.Output != "" && a.Out.Terminal() {
			a.Out.Println()
		}
		view.WriteDiff(a.Out, diff)
	}
	if r.Attempt > 0 {
		a.Remark("%s, %s, %s tokens   run %s", strings.ReplaceAll(string(r.State), "_", " "), view.Counted(r.Usage.Calls, "model call"), lineage.Thousands(r.Usage.Tokens()), r.Run)
	}
}
