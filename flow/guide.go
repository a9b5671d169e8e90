package flow

import (
	"context"

	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// AddWorkspaceGuide adds the instructions for agents from the files of s: AGENTS.md, and
// the names of skills. They become quoted content of the workspace, which stays unchanged
// in the session and its forks, even if the files change; a session that has it is
// returned unchanged. The returned tools let an agent read the named skills. Add the
// user's message after it. After a merge of branches that each have it, an agent reads it
// once.
func AddWorkspaceGuide(ctx context.Context, s session.Session) (session.Session, []tool.Tool, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return s, nil, err
	}
	s, skills, err := e.AddWorkspaceGuide(ctx, s)
	if err != nil || !skills {
		return s, nil, err
	}
	t, _ := tool.ByName(tool.Skill)
	return s, []tool.Tool{t}, nil
}
