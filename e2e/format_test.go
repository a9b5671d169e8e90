//go:build e2e && linux

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestFORMATTool runs the program in JavaScript that messages/FORMAT.md shows,
// and the command under it, whose agent calls the program's tool.
func TestFORMATTool(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "messages", "FORMAT.md"))
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile("(?m)^`rath (run [^`\"]*)\"([^`\"]*)\"`").FindStringSubmatch(string(text))
	if command == nil {
		t.Fatal("FORMAT.md does not say how to call the tool")
	}
	script, err := filepath.Abs(filepath.Join("testdata", "format_tool.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	d := startDev(t, "--script", script)
	program := filepath.Join(installJS(t), "tool.mjs")
	if err := os.WriteFile(program, []byte(blockOf(t, "FORMAT.md", string(text), "js", 0)), 0o644); err != nil {
		t.Fatal(err)
	}
	tool := d.begin(exec.Command("node", program))

	nc, err := nats.Connect(readmeAddress)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	tool.until("announced tool", func() bool {
		m, err := nc.Request("rath.query.default.tools", []byte("{}"), time.Second)
		return err == nil && bytes.Contains(m.Data, []byte(`"weather"`))
	})
	o := d.rath(append(strings.Fields(command[1]), command[2])...)
	o.stderr = "" // the answer is printed
	o.want(t, 0, "The sky over Rome is clear.")
}

// TestFORMATFiles runs the program in JavaScript that uploads a folder, runs an agent on
// it, and prints what it changed.
func TestFORMATFiles(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "messages", "FORMAT.md"))
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs(filepath.Join("testdata", "format_files.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	d := startDev(t, "--script", script)
	install, dir := installJS(t), t.TempDir()
	program := filepath.Join(install, "files.mjs")
	if err := os.WriteFile(program, []byte(blockOf(t, "FORMAT.md", string(text), "js", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"a.txt": "one\ntwo\n", "sub/big": strings.Repeat("0123456789abcdef", 50_000), ".git/config": "[core]", "empty": ""} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
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
