package view

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
)

// WriteWorkflow writes an offered workflow and its parts, in lines of at most 80 columns.
func WriteWorkflow(out *term.Writer, w *messages.Workflow) {
	rows := [][]string{
		{"workflow", term.Line(w.Name, 64)},
		{"revision", cmp.Or(term.Line(w.Revision, 66), "-")},
		{"pool", term.Line(w.Pool, 64)},
		{"class", cmp.Or(term.Line(w.Class, 66), messages.ClassInteractive)},
		{"input", "anything"},
		{"type", cmp.Or(term.Line(w.Type, 66), "not known: it is made of what a task says")},
	}
	if len(w.Input) > 0 {
		rows[4][1] = "of a JSON schema: --format json shows it"
	}
	for i, line := range term.Wrap(term.Line(w.Description, 600), 68) {
		rows = append(rows, []string{"", line})
		if i == 0 {
			rows[len(rows)-1][0] = "does"
		}
	}
	out.Rows(nil, rows)
	if len(w.Parts) == 0 {
		return
	}
	out.Println()
	rows = nil
	for i := range w.Parts {
		p := &w.Parts[i]
		rows = append(rows, []string{term.Line(p.Path, 26), term.Line(strings.TrimSpace(p.Kind+" "+p.Name), 28), modelOf(p)})
		for _, about := range []string{p.Description, limitsOf(p)} {
			if about == "" {
				continue
			}
			for _, line := range term.Wrap(term.Line(about, 600), 76) {
				rows = append(rows, []string{"    " + line})
			}
		}
	}
	out.Rows([]string{"PART", "WHAT", "MODEL"}, rows)
	if w.Left > 0 {
		out.Printf("and %s more\n", Counted(int64(w.Left), "part"))
	}
}

// AgentsOf returns the number of agents in a workflow, if known.
func AgentsOf(w *messages.Workflow) string {
	n := 0
	for i := range w.Parts {
		if w.Parts[i].Kind == "agent" {
			n++
		}
	}
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// modelOf returns the model of a part.
func modelOf(p *messages.WorkflowPart) string {
	if p.Model == "" && p.Kind != "workflow" {
		return "the task's"
	}
	return cmp.Or(term.Line(p.Model, 20), "-")
}

// limitsOf lists the tools, MCP servers, memory, revision and limits of a part.
func limitsOf(p *messages.WorkflowPart) string {
	var all []string
	if p.Branch {
		all = append(all, "on a branch")
	}
	for _, l := range []struct {
		what  string
		names []string
	}{{"tools", p.Tools}, {"MCP servers", p.MCP}} {
		if len(l.names) > 0 {
			all = append(all, l.what+" "+strings.Join(l.names, ", "))
		}
	}
	if p.Memory != "" {
		all = append(all, "memory "+p.Memory)
	}
	if p.Revision != "" {
		all = append(all, "revision "+p.Revision)
	}
	if p.MaxRounds > 0 {
		all = append(all, fmt.Sprintf("%d rounds at most", p.MaxRounds))
	}
	if p.MaxContext > 0 {
		all = append(all, fmt.Sprintf("%d tokens of context", p.MaxContext))
	}
	if p.Budget != (messages.Budget{}) {
		all = append(all, "budget "+BudgetText(p.Budget))
	}
	return strings.Join(all, "; ")
}
