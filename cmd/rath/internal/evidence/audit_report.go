package evidence

import (
	"fmt"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
)

// audited prints the findings of an audit.
func audited(a *app.App, r *audit.Report) error {
	done, err := app.EmitOne(a, r)
	if !done {
		for _, v := range r.Violations {
			a.Out.Println(a.Out.Paint(term.Red, term.Line(v.String(), 1000)))
		}
		if !r.OK() {
			a.Out.Println()
		}
		docs := map[string]string{}
		for _, i := range audit.Invariants() {
			docs[i.Name] = i.Doc
		}
		var rows [][]string
		broken := uint64(0)
		for _, c := range r.Counts {
			broken += c.Violations
			found := excerpt.Thousands(int64(c.Violations)) //nolint:gosec // counted one by one
			if c.Violations == 0 {
				found = "-"
			}
			rows = append(rows, []string{c.Invariant, excerpt.Thousands(int64(c.Checked)), found}) //nolint:gosec // likewise
		}
		a.Out.Rows([]string{"PROMISE", "CHECKED", "BROKEN"}, rows)
		a.Out.Println()
		total := fmt.Sprintf("%s, %s, %s, %s", view.Counted(int64(r.Commits), "commit"), view.Counted(int64(r.Events), "event"), //nolint:gosec // likewise
			view.Counted(int64(r.Sessions), "session"), view.Counted(int64(r.Runs), "run")) //nolint:gosec // likewise
		if r.Open > 0 {
			total += fmt.Sprintf(", %s of them open", excerpt.Thousands(int64(r.Open))) //nolint:gosec // likewise
		}
		verdict := a.Out.Paint(term.Green, "every promise was kept")
		if len(r.Missing) > 0 {
			verdict = a.Out.Paint(term.Yellow, "every promise was kept, as far as can be checked without these streams")
		} else if len(r.Newer) > 0 {
			verdict = a.Out.Paint(term.Yellow, "every promise known to this auditor was kept")
		}
		if broken > 0 {
			verdict = a.Out.Paint(term.Red, view.Counted(int64(broken), "violation")) //nolint:gosec // likewise
			for _, c := range r.Counts {
				if c.Violations > 0 {
					a.Remark("%s: %s", c.Invariant, docs[c.Invariant])
					if c.Invariant == audit.Lineage {
						a.Remark("rath cluster repair derives lineage again that was lost")
					}
				}
			}
		}
		if len(r.Missing) > 0 {
			a.Out.Println("missing, so not checked: " + view.Names(r.Missing))
		}
		for _, n := range r.Newer {
			a.Out.Println(fmt.Sprintf("newer than this auditor: %s of %s, edition %d, %s", n.Field, n.Kind, n.Edition, view.Counted(int64(n.Count), "event"))) //nolint:gosec // likewise
		}
		a.Out.Println(total)
		a.Out.Println(verdict)
	}
	if err == nil && !r.OK() {
		err = app.Silent(app.ExitFailed)
	}
	if err == nil && len(r.Newer)+len(r.Missing) > 0 {
		err = app.Silent(app.ExitPartial)
	}
	return err
}
