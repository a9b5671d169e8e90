//go:build e2e && linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/cluster"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestOperationsMachines runs the lines of docs/operations.md about one's own machines, as
// far as a single machine allows: the programs are built at the paths that later lines use,
// and accept the given flags.
func TestOperationsMachines(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(document(t, operationsPage), "\n## On machines of your own\n")
	section, _, _ = strings.Cut(section, "\n## ")
	section = strings.ReplaceAll(section, "\\\n", "")
	var lines []string
	for line := range strings.Lines(section) {
		if typed, ok := strings.CutPrefix(line, "    "); ok {
			line, _, _ = strings.Cut(typed, "#")
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) == 0 || !strings.HasPrefix(lines[0], "go build -o bin/ ") {
		t.Fatalf("the section does not begin with a build into bin/: %q", lines)
	}
	dir := t.TempDir()
	sh := func(where, line string) string {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir = where
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("$ %s\n%s%v", line, out, err)
		}
		return string(out)
	}
	sh("..", strings.Replace(lines[0], "bin/", filepath.Join(dir, "bin")+"/", 1))
	typed := map[string]bool{}
	for _, line := range lines[1:] {
		program, rest, _ := strings.Cut(line, " ")
		command, _, _ := strings.Cut(rest, " ")
		typed[program], typed[program+" "+command] = true, true
		switch {
		case strings.HasPrefix(line, "bin/rath cluster key"), program == "ssh-keygen":
			sh(dir, line)
		case command == "node":
			for _, same := range []string{"node", "router"} { // "takes the same flags"
				said := sh(dir, strings.Replace(line, "bin/rath node", "bin/rath "+same, 1)+" -help")
				if !strings.Contains(said, "Usage of "+same) {
					t.Errorf("rath %s -help says %q", same, said)
				}
			}
		default:
			sh(dir, line+" --help")
		}
	}
	if !typed["bin/rath node"] || !typed["bin/rath cluster"] {
		t.Errorf("the section types %v", typed)
	}
	key := must.Get(os.ReadFile(filepath.Join(dir, "gossip.key")))(t)
	if _, err := cluster.ParseKey(strings.TrimSpace(string(key))); err != nil {
		t.Error(err)
	}
}
