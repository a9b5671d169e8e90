package mcp_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/agents/mcp"
	"github.com/rathcluster/rath/internal/testkit/mcptest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/tool"
)

// TestLeft: the end of a server is noticed although a process that it left, which is out of
// reach, holds its streams.
func TestLeft(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	var argv []string
	must.Do(t, json.Unmarshal([]byte(mcptest.Command("good")), &argv))
	line := must.Get(json.Marshal(append([]string{"sh", "-c", `setsid sleep 30 & echo $! >"$0"; exec "$@"`, pid}, argv...)))(t)
	l := must.Get(mcp.Parse("mcp.yaml", []byte("servers:\n  s: {command: "+string(line)+", where: host, call_ms: 20_000}\n")))(t)
	c := connect(t, l.All()[0])
	t.Cleanup(func() {
		if out, err := exec.Command("sh", "-c", `kill "$(cat "$0")"`, pid).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	if _, err := c.Call(t.Context(), "s__die", tool.Call{}); err == nil || !strings.Contains(err.Error(), "exited with code 3") {
		t.Errorf("%v; want how it ended", err)
	}
}
