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
