package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/mcptest"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestMCP: an agent has the tools of a server that its task names. A call during which
// the server dies is made again if the server calls it read-only; else it is not, and the
// run waits for a person.
func TestMCP(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	script, err := scripted.Parse("mcp.txtar", fmt.Appendf(nil, `
-- note --
user: note
not result: s__note
call: s__note {"text":"noted","file":%q}

-- die --
user: perish
not result: s__die
call: s__die {"file":%q}

-- again --
user: again
not result: s__die_read_only
call: s__die_read_only {"file":%q,"unless":%q}

-- else --

done
`, file("note"), file("die"), file("again"), file("again")))
	if err != nil {
		t.Fatal(err)
	}
	model, err := scripted.New(script, nil)
	if err != nil {
		t.Fatal(err)
	}
	list := file("mcp.yaml")
	if err := os.WriteFile(list, []byte("servers:\n  s: {command: "+mcptest.Command("good")+", where: host}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := begin(t, &Options{Store: file("store"), Level: "lazy", Models: model, MCPList: list, Env: os.Getenv}).started(t)
	c, err := n.Client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	do := func(word string) messages.Result {
		t.Helper()
		r, err := c.Do(t.Context(), "agent", messages.Task{Input: json.RawMessage(`"` + word + `"`), MCP: []string{"s"}}, nil)
		if err != nil || r.State != run.Succeeded {
			t.Fatalf("%s: %+v, %v", word, r, err)
		}
		return r
	}
	if r := do("note"); strings.Join(toolTexts(t, c, r.Session), "") != `{"text":"noted"}` {
		t.Error(toolTexts(t, c, r.Session))
	}
	if r := do("again"); strings.Join(toolTexts(t, c, r.Session), "") != `{"text":"lives"}` {
		t.Error(toolTexts(t, c, r.Session))
	}
	for name, want := range map[string]string{"note": "noted\n", "again": "\n\n"} {
		if data, err := os.ReadFile(file(name)); err != nil || string(data) != want {
			t.Errorf("%s was called %q, %v; want %q", name, data, err, want)
		}
	}

	id := run.ID("dies")
	if _, err := c.Submit(t.Context(), "agent", messages.Task{ID: id, Input: json.RawMessage(`"perish"`), MCP: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(soon); ; time.Sleep(20 * time.Millisecond) {
		v, err := c.Run(t.Context(), id)
		if err == nil && v.State == run.NeedsReview {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	if data, err := os.ReadFile(file("die")); err != nil || string(data) != "\n" {
		t.Errorf("die was called %q, %v; want once", data, err)
	}
	r, err := c.Do(t.Context(), "agent", messages.Task{Input: json.RawMessage(`"note"`), MCP: []string{"t"}}, nil)
	if err != nil || r.Code != run.CodeMalformed || !strings.Contains(r.Error, `mcp[0]: there is no MCP server "t"`) {
		t.Errorf("%+v, %v", r, err)
	}
}
