package flowtest_test

import (
	"context"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestHeadWithoutSandbox: a sandboxed call that does not open the sandbox leaves the
// files unchanged, also right after a branch was adopted.
func TestHeadWithoutSandbox(t *testing.T) {
	write, _ := tool.ByName("write_workspace_file")
	pure := tool.Func("pure", "Touches no file.", func(context.Context, struct{}) (int, error) { return 1, nil }, &tool.FuncOptions{Effect: tool.Sandboxed})
	var adopted blob.Digest
	s := flowtest.Run(t, flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		s, _, err := flow.CallTool(ctx, s, write, map[string]string{"path": "a.txt", "content": "old\n"})
		if err != nil {
			return s, err
		}
		try, err := flow.Fork(ctx, s)
		if err != nil {
			return s, err
		}
		if try, _, err = flow.CallTool(ctx, try, write, map[string]string{"path": "a.txt", "content": "new\n"}); err != nil {
			return s, err
		}
		if s, err = flow.Adopt(ctx, s, try, "better"); err != nil {
			return s, err
		}
		adopted = s.Placement().Head
		s, _, err = flow.CallTool(ctx, s, pure, struct{}{})
		return s, err
	}), session.New(session.UserText("go")), "testdata/fix.txtar", nil)
	if head := s.Placement().Head; head != adopted || adopted.IsZero() {
		t.Errorf("the head is %s, the adopted one %s", head.Short(), adopted.Short())
	}
}
