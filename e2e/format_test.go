//go:build e2e && linux

package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestFORMATTool runs the program in JavaScript that messages/FORMAT.md shows,
// and the command under it, whose agent calls the program's tool.
func TestFORMATTool(t *testing.T) {
	text := must.Get(os.ReadFile(filepath.Join("..", "messages", "FORMAT.md")))(t)
	command := regexp.MustCompile("(?m)^`rath (run [^`\"]*)\"([^`\"]*)\"`").FindStringSubmatch(string(text))
	if command == nil {
		t.Fatal("FORMAT.md does not say how to call the tool")
	}
	script := must.Get(filepath.Abs(filepath.Join("testdata", "format_tool.txtar")))(t)
	d := startDev(t, "--script", script)
	program := filepath.Join(installJS(t), "tool.mjs")
	must.Do(t, os.WriteFile(program, []byte(blockOf(t, "FORMAT.md", string(text), "js", 0)), 0o644))
	tool := d.begin(exec.Command("node", program))

	nc := must.Get(nats.Connect(readmeAddress))(t)
	defer nc.Close()
	tool.until("announced tool", func() bool {
		m, err := nc.Request("rath.query.default.tools", []byte("{}"), time.Second)
		return err == nil && bytes.Contains(m.Data, []byte(`"weather"`))
	})
	o := d.rath(append(strings.Fields(command[1]), command[2])...)
	o.stderr = "" // the answer is printed
	o.want(t, 0, "The sky over Rome is clear.")

	// A call that is cancelled: the program hears of it.
	var at struct {
		User string `json:"tool_user"`
		Pass string `json:"tool_password"`
	}
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile(filepath.Join(d.dir, ".rath", "node.json")))(t), &at))
	observer := must.Get(nats.Connect(readmeAddress, nats.UserInfo(at.User, at.Pass)))(t)
	defer observer.Close()
	seen := must.Get(observer.SubscribeSync("rath.tool.default.*"))(t)
	must.Do(t, observer.Flush())
	d.rath("submit", "agent", "--tools", "weather", "--id", "far", "-m", "the weather in Atlantis").want(t, 0)
	must.Get(seen.NextMsg(time.Minute))(t)
	d.rath("cancel", "far", "--reason", "too far").want(t, 0)
	if m := must.Get(seen.NextMsg(time.Minute))(t); m.Subject != "rath.tool.default.weather:cancel" || !bytes.Contains(m.Data, []byte("too far")) {
		t.Errorf("the program hears %s on %s", m.Data, m.Subject)
	}
}

// TestFORMATFiles runs the JavaScript program that uploads a folder, runs an agent on it,
// and prints the changes.
func TestFORMATFiles(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "messages", "FORMAT.md"))
	must.Do(t, err)
	script, err := filepath.Abs(filepath.Join("testdata", "format_files.txtar"))
	must.Do(t, err)
	d := startDev(t, "--script", script)
	install, dir := installJS(t), t.TempDir()
	program := filepath.Join(install, "files.mjs")
	must.Do(t, os.WriteFile(program, []byte(blockOf(t, "FORMAT.md", string(text), "js", 1)), 0o644))
	for name, data := range map[string]string{"a.txt": "one\ntwo\n", "sub/big": strings.Repeat("0123456789abcdef", 50_000), ".git/config": "[core]", "empty": ""} {
		must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644))
	}
	out, err := exec.CommandContext(t.Context(), "node", program, readmeAddress, dir, "edit it").CombinedOutput()
	if err != nil || string(out) != "--- a.txt\n-two\n+three\n" {
		t.Errorf("node files.mjs: %v\n%s", err, out)
	}
	o := d.rath("diff", "-", "@last")
	o.want(t, 0, "three")
	if bytes.Contains([]byte(o.stdout), []byte("[core]")) {
		t.Error(".git was uploaded")
	}
}
