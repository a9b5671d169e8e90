// Package sandboxes is the third example of the ladder: where the tools of a session work.
package sandboxes

import (
	"context"
	_ "embed"

	"github.com/rathcluster/rath/examples/ladder"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

//go:embed model.txtar
var script []byte

// Rung is the example.
func Rung() ladder.Rung {
	return ladder.Rung{
		Dir: "03-sandbox", Name: "sandbox", Does: "Looks into two sandboxes.",
		New: newLook, Input: "Which files are here?", Script: script,
	}
}

// Look lists files where the session is, and before that in a sandbox that has none.
type Look struct{ Lister *flow.Agent }

// Forward implements flow.Workflow.
func (w *Look) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	// Like a tensor's to, To sets where the following work happens. It opens no sandbox: the
	// first tool that needs one opens it. Without a directory it has no files. "local" is
	// this machine; tasks may name another backend: docker, kubernetes, opensandbox.
	empty, err := flow.Fork(ctx, s)
	if err != nil {
		return s, err
	}
	if empty, err = w.Lister.Forward(ctx, empty.To("local", "")); err != nil {
		return s, err
	}
	if err := flow.Reject(ctx, empty, "nothing to see"); err != nil {
		return s, err
	}
	// s was not moved: it works on a copy of the task's files, and its changes there are part
	// of the session. The user's directory is unchanged.
	return w.Lister.Forward(ctx, s)
}

func newLook(s flow.Info) (flow.Workflow, error) {
	list, _ := tool.ByName(tool.ListWorkspaceFiles)
	return ladder.Prompted(s, &Look{Lister: &flow.Agent{
		Name: "lister", Prompt: "You are the lister. List the files.",
		Provider: llm.Provider{Model: s.Model}, Tools: []tool.Tool{list},
	}})
}
