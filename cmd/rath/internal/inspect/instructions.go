package inspect

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
)

// showStep shows one step of a run or of its branches, by its number or its path.
func showStep(ctx context.Context, a *app.App, s *app.System, name, step string) error {
	r, err := reference.Run(ctx, s, name)
	if err != nil {
		return err
	}
	if r.Session == "" {
		return app.Fail(app.ExitNotFound, "run %s has no steps: it ended before a log held it", r.Run)
	}
	g, _, err := reference.RunGraph(ctx, s, &r)
	if err != nil {
		return err
	}
	all := g.StepsOf(s.Tenant(), r.Run)
	i := slices.IndexFunc(all, func(rec messages.Record) bool { return string(rec.Step) == step })
	if n, err := strconv.Atoi(step); err == nil {
		i = n - 1
	}
	if i < 0 || i >= len(all) {
		return app.Fail(app.ExitNotFound, "run %s has no step %s: it has %s; list them with: rath show %s --steps 1..", r.Run, step, view.Counted(int64(len(all)), "step"), r.Run)
	}
	f := &found{target: target{text: fmt.Sprintf("%s/%s", all[i].Run, all[i].Step)}, run: &r, graph: g, whole: true}
	return whyStep(ctx, a, s, f, all[i].Run, all[i].Step)
}
