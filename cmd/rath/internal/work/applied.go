package work

import (
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/workspace"
)

// applied prints the names of the files that were carried into a directory and of the
// others. A rejected path makes the command a partial success.
func applied(a *app.App, p *workspace.Plan, dir string) error {
	switch {
	case len(p.Paths) > 0:
		a.Remark("applied to %s", dir)
	default:
		a.Remark("no change was applied to %s", dir)
	}
	return withheld(a, p)
}

// withheld prints the paths that a plan does not carry.
func withheld(a *app.App, p *workspace.Plan) error {
	var left, refused []string
	may := ""
	for _, w := range p.Withheld {
		if !w.Refused {
			left = append(left, w.Path)
			continue
		}
		refused = append(refused, w.Path)
		if may == "" && !w.Never {
			may = w.Path
		}
		if len(refused) <= maxWithheld {
			a.Err.Println(a.Err.Paint(term.Yellow, "refused") + " " + term.Line(w.Path, 200) + ": " + w.Why)
		}
	}
	if len(left) > 0 {
		a.Remark("excluded by the rules of the import: %s", some(left, 0))
	}
	if len(refused) == 0 {
		return nil
	}
	if n := len(refused) - maxWithheld; n > 0 {
		a.Err.Println("refused", n, "more paths")
	}
	if may != "" {
		return app.Fail(app.ExitPartial, "%s can do harm outside of a sandbox and %s not carried over; allow one by its name, such as --allow %s",
			view.Counted(int64(len(refused)), "changed path"), were(len(refused)), term.Line(may, 200))
	}
	return app.Fail(app.ExitPartial, "%s can do harm outside of a sandbox and %s not carried over", view.Counted(int64(len(refused)), "changed path"), were(len(refused)))
}

// maxWithheld bounds the rejected paths that are named.
const maxWithheld = 20

func were(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
