package inspect

import (
	"context"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/session"
)

// impact prints the later work that could see the target; all prints whole lists.
func impact(ctx context.Context, a *app.App, s *app.System, text string, all bool) error {
	t, err := parseTarget(text)
	if err != nil {
		return err
	}
	f, err := find(ctx, s, t, true)
	if err != nil {
		return err
	}
	var i lineage.Impact
	switch {
	case f.path != "":
		return app.Fail(app.ExitUsage, "%q is a file: name the step that changed it; \"rath why %s\" lists the steps", text, text)
	case f.row >= 0:
		var r session.Ref
		if r, err = chunkOf(ctx, s, f); err == nil {
			i, err = f.graph.Impact(r.Key, r.Version)
		}
	case f.call != nil:
		i, err = f.graph.ImpactOfStep(s.Tenant(), f.call.Run, f.call.Step)
	case f.step != "":
		i, err = f.graph.ImpactOfStep(s.Tenant(), f.run.Run, f.step)
	case t.version > 0:
		i, err = f.graph.Impact(f.Ref(s.Tenant()).Key, t.version)
	default:
		return app.Fail(app.ExitUsage, "%q is all of a session or run: name a version, a row or a step, such as %s:3, %s#0 or %s/0", text, text, text, text)
	}
	if err != nil {
		return err
	}
	out, err := recordsOf(s).Impact(ctx, i)
	if err != nil {
		return err
	}
	if done, err := app.EmitOne(a, out); done {
		return err
	}
	view.WriteImpact(a.Out, text, out, all)
	return nil
}
