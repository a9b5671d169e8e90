//go:build e2e && linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// mcpModules are MCP servers that are written by others.
var mcpModules = []string{
	"@modelcontextprotocol/server-everything@2026.8.31", "@modelcontextprotocol/server-filesystem@2026.8.31", "@modelcontextprotocol/server-memory@2026.8.31",
}

const mcpScript = `
-- text --
user: tour
not result: everything__get-structured-content
call: everything__get-structured-content {"location":"New York"}
call: everything__get-tiny-image {}
call: everything__get-sum {"a":2,"b":40}

-- files --
user: tour
not result: files__write_file
call: files__write_file {"path":%[1]q,"content":"written by a tool"}
call: files__read_text_file {"path":"/etc/passwd"}

-- memory --
user: tour
not result: memory__create_entities
call: memory__create_entities {"entities":[{"name":"Rath","entityType":"runtime","observations":["it runs"]}]}

-- long --
user: wait
not result: everything__trigger-long-running-operation
call: everything__trigger-long-running-operation {"duration":10,"steps":2}

-- else --

done
`

// TestMCPServers calls tools of three third-party servers, and kills one of them during a
// call that it marks as read-only: a fresh process repeats the call.
func TestMCPServers(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "RATH_MCP=mcp.yaml")
	d.env = append(d.env, "MEMORY_FILE_PATH="+filepath.Join(d.dir, "memory.json"))
	installModules(t, d.dir, d.env, mcpModules...)
	at := func(name string) string { return filepath.Join(d.dir, name) }
	bin := at("node_modules/.bin/mcp-server-")
	must.Do(t, os.Mkdir(at("shared"), 0o755))
	d.file("mcp.yaml", fmt.Sprintf(`servers:
  everything: {where: host, command: "echo $$ > %[1]s; tee -a %[2]s | %[3]severything"}
  files: {where: host, command: [%[3]sfilesystem, %[4]s]}
  memory: {where: host, command: [%[3]smemory], env: [MEMORY_FILE_PATH]}
`, at("pid"), at("calls"), bin, at("shared")))
	d.file("m.txtar", fmt.Sprintf(mcpScript, at("shared/note")))

	d.rath("mcp", "test").want(t, 0, "everything__get-sum", "files__write_file", "memory__create_entities  ", "non_idempotent")
	d.rath("run", "--mcp", "everything,files,memory", "--script", "m.txtar", "-m", "tour", "-q").want(t, 0, "done")
	d.rath("show", "@last", "--format", "json").want(t, 0,
		`image/png`, `The sum of 2 and 40 is 42.`, `structured`, `conditions`, `Access denied`, `Successfully wrote`)
	for name, want := range map[string]string{"shared/note": "written by a tool", "memory.json": "it runs"} {
		if data, err := os.ReadFile(at(name)); err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s holds %q, %v; want %q", name, data, err, want)
		}
	}

	const called = `"name":"trigger-long-running-operation"`
	count := func() int {
		data := must.Get(os.ReadFile(at("calls")))(t)
		return strings.Count(string(data), called)
	}
	j := d.start("run", "--mcp", "everything", "--script", "m.txtar", "-m", "wait", "-q")
	j.until("call", func() bool { return count() > 0 })
	data := must.Get(os.ReadFile(at("pid")))(t)
	pid := must.Get(strconv.Atoi(strings.TrimSpace(string(data))))(t)
	if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil { // its group
		t.Fatal(err)
	}
	j.wait().want(t, 0, "done")
	d.rath("show", "@last").want(t, 0, "Long running operation completed")
	if n := count(); n != 2 {
		t.Errorf("it was called %d times, want 2", n)
	}
	if again, err := os.ReadFile(at("pid")); err != nil || string(again) == string(data) {
		t.Errorf("no fresh process: %q, %v", again, err)
	}
}
