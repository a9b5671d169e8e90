package inspect

import (
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/inprocess"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/internal/testkit/must"
	llmscripted "github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/scripted"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestLongCommandShowsHowItEnded: a command that is too long for a line is cut at its
// end, and its outcome is still shown.
func TestLongCommandShowsHowItEnded(t *testing.T) {
	shell, _ := tool.ByName(tool.RunShellCommand)
	script := must.Get(llmscripted.Parse("model", []byte(`
-- runs --
not result: run_shell_command
call: run_shell_command {"cmd":"echo first`+strings.Repeat("a", 120)+`; exit 3"}
call: run_shell_command {"cmd":"echo second`+strings.Repeat("a", 120)+`; exit 4"}

-- done --

done
`)))(t)
	model := must.Get(llmscripted.New(script, nil))(t)
	r := &inprocess.Runner{
		Blobs: blob.NewMemory(), Dir: t.TempDir(), Models: model, Model: "m",
		Sandboxes: map[string]sandbox.Backend{"local": scripted.New(&scripted.Options{Name: "local"})}, Unsafe: true,
	}
	s := must.Get(r.Run(t.Context(), &flow.Agent{Name: "agent", Tools: []tool.Tool{shell}}, session.New(session.UserText("go")).To("local", "")))(t)
	g := graphIn(t, r, s.Key())
	tree := must.Get(g.Tree(s.Key(), &lineage.TreeOptions{Width: 80}))(t)

	var text strings.Builder
	w := term.New(&text, nil)
	var tools []messages.Record
	follow := view.NewTimeline(func(l view.Line) { w.Println(view.LineText(w, l)) })
	for _, rec := range g.Records(s.Key()) {
		follow.Add(t.Context(), rec)
		if rec.Kind == messages.KindTool {
			tools = append(tools, rec)
		}
	}
	follow.Finish(t.Context())
	timeline := text.String()
	text.Reset()
	steps := (&view.StepQuery{}).Choose(tools)
	name := func(session.ID) string { return "s1" }
	view.WriteSteps(w, steps, name)
	table := text.String()
	text.Reset()
	for i := range steps {
		w.Println(view.StepLine(w, &steps[i], name))
	}
	for what, got := range map[string]string{"the tree": tree, "the timeline": timeline, "the table of steps": table, "a list of steps": text.String()} {
		for command, exit := range map[string]string{"echo first": "…, exit 3", "echo second": "…, exit 4"} {
			if !slices.ContainsFunc(strings.Split(got, "\n"), func(l string) bool {
				_, after, ok := strings.Cut(l, command)
				return ok && strings.Contains(after, exit) && term.Width(l) <= 80
			}) {
				t.Errorf("%s does not show %q of %q:\n%s", what, exit, command, got)
			}
		}
	}
}
