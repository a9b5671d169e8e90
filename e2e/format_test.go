//go:build e2e && linux

package e2e

import (
	"bytes"
	"context"
	"errors"
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
	js := installJS(t)
	if err := os.WriteFile(filepath.Join(js, "tool.mjs"), []byte(blockOf(t, "FORMAT.md", string(text), "js", 0)), 0o644); err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs(filepath.Join("testdata", "format_tool.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	bin := buildRath(t)
	dir := startDev(t, bin, "--script", script)

	ctx, cancel := context.WithTimeout(t.Context(), programTimeout)
	defer cancel()
	tool := exec.CommandContext(ctx, "node", filepath.Join(js, "tool.mjs"))
	tool.Dir, tool.Env = dir, cleanEnv(t)
	var stderr bytes.Buffer
	tool.Stderr = &stderr
	if err := tool.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- tool.Wait() }()
	stopped := false
	t.Cleanup(func() { // before the node that it is connected to ends
		if stopped {
			return
		}
		if err := tool.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		<-ended
	})

	nc, err := nats.Connect(readmeAddress)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for {
		if m, err := nc.RequestWithContext(ctx, "rath.query.default.tools", []byte("{}")); err == nil && bytes.Contains(m.Data, []byte(`"weather"`)) {
			break
		}
		select {
		case err := <-ended:
			stopped = true
			t.Fatalf("the program of the tool ended: %v\n%s", err, stderr.String())
		case <-ctx.Done():
			t.Fatal("nobody announced the tool")
		case <-time.After(100 * time.Millisecond):
		}
	}
	out := program(t, dir, cleanEnv(t), bin, append(strings.Fields(command[1]), command[2])...)
	if !strings.Contains(out, "The sky over Rome is clear.") {
		t.Errorf("rath %s%q says\n%s", command[1], command[2], out)
	}
}
