package flow

import (
	"context"

	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// AddWorkspaceGuide adds what the files of s say for agents: AGENTS.md, and the names of skills. It
// enters as quoted content of the workspace and stays as it is for the session and its
// forks, also when the files change; a session that has it comes back as it is. The tools
// are those by which an agent reads what is named there. Add what the user says after it.
// Of branches that each have it an agent reads it once.
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
