package mcp_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/agents/mcp"
	"github.com/rathcluster/rath/internal/testkit/mcptest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// bare runs commands unconfined, with both streams of a server merged.
type bare struct{ sandbox.Sandbox }

func (bare) Exec(ctx context.Context, c sandbox.Cmd) (sandbox.Exit, error) {
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Stdout, cmd.Stderr = c.Offload, c.Offload
	in, err := cmd.StdinPipe()
	if err != nil {
		return sandbox.Exit{}, err
	}
	go func() { // a Read under way when the command ends is not waited for
		_, _ = io.Copy(in, c.Stdin)
		_ = in.Close()
	}()
	for name, v := range c.Env {
		cmd.Env = append(cmd.Env, name+"="+v)
	}
	err = cmd.Run()
	if ctx.Err() != nil {
		return sandbox.Exit{Ended: sandbox.Cancelled}, nil
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return sandbox.Exit{Ended: sandbox.Exited, Code: exit.ExitCode()}, nil
	}
	return sandbox.Exit{Ended: sandbox.Exited}, err
}

// TestSaidInSandbox reports the standard error of a server in a sandbox when it ends,
// without its secrets, and does not treat it as protocol messages before.
func TestSaidInSandbox(t *testing.T) {
	const secret = "hidden-hidden"
	env := func(name string) string { return map[string]string{"SECRET": secret, "PATH": os.Getenv("PATH")}[name] }
	start := func(command string) (*mcp.Conn, error) {
		l := must.Get(mcp.Parse("mcp.yaml", []byte("servers:\n  s: {command: "+command+", where: sandbox, env: [SECRET, PATH]}\n")))(t)
		return l.All()[0].Connect(t.Context(), env, bare{})
	}
	for command, want := range map[string]string{
		mcptest.Command("exits"): `it exited with code 1, with "there is no configuration" on standard error`,
		mcptest.Command("tells"): `cannot go on with [redacted]`,
		"[nothing-of-that-name]": `the sandbox has no program "nothing-of-that-name"`,
	} {
		if _, err := start(command); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v; want %q", command, err, want)
		}
	}
	c := must.Get(start(mcptest.Command("good")))(t)
	if o := call(c, "s__echo", `{"text":"hi"}`); string(o.Body) != `{"text":"you said hi"}` {
		t.Errorf("%s, %v", o.Body, o.Err)
	}
	if o := call(c, "s__die", "{}"); o.Err == nil || !strings.Contains(o.Err.Error(), "exited with code 3") {
		t.Errorf("%v", o.Err)
	}
	must.Report(t, c.Close())
}
