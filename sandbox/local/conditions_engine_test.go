//go:build engine

package local

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// conditions are the environments of a process that opens sandboxes, on this kernel.
var conditions = []string{"root", "user", "pod"}

// commandOf starts the suite's checks of confinement under a condition.
func commandOf(t *testing.T, condition, suite string) *exec.Cmd {
	t.Helper()
	checks := []string{"-test.run=TestConformance$/strongest/(kernel|limits|tree|services)", "-test.v"}
	switch condition {
	case "user":
		return exec.Command("setpriv", append([]string{"--reuid", "65534", "--regid", "65534", "--clear-groups", suite}, checks...)...)
	case "pod":
		// As in the restricted profile of pods: no root, no capability, no new privileges,
		// a read-only root, and the engine's filter of system calls, which prevents new
		// namespaces.
		const image = "rath-sandbox:test"
		if out, err := exec.Command("docker", "import", os.Getenv("RATH_SANDBOX_IMAGE_TAR"), image).CombinedOutput(); err != nil {
			t.Fatalf("import the image: %v: %s; run the tests with .ci/engine", err, out)
		}
		return exec.Command("docker", append([]string{
			"run", "--rm", "--network", "none", "--user", "1000:1000", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only",
			"--tmpfs", "/scratch:exec,uid=1000,gid=1000", "-e", "HOME=/scratch", "-e", "TMPDIR=/scratch", "-w", "/scratch", "-v", suite + ":/suite:ro",
			"-v", "/etc/shadow:/etc/shadow:ro", "-v", "/root:/root:ro", "-v", "/home:/home:ro", image, "/suite",
		}, checks...)...)
	}
	return exec.Command(suite, checks...)
}

var ended = regexp.MustCompile(`(?m)^ +--- (PASS|FAIL): TestConformance/strongest/(\S+)`)

// TestConditions runs the checks of confinement as root, as a user without privileges, and
// in the environment of a pod of the restricted profile, and compares the passing ones with
// testdata/conditions.txt. The tests of this tag run under .ci/engine. RATH_TEST_CONDITIONS
// names a directory with outputs from elsewhere, in files named by condition, and the
// golden file for them, see .ci/kernel.
func TestConditions(t *testing.T) {
	said := make(map[string]string)
	golden := filepath.Join("testdata", "conditions.txt")
	if dir, name, ok := strings.Cut(os.Getenv("RATH_TEST_CONDITIONS"), "="); ok {
		golden = filepath.Join("testdata", name)
		for _, c := range conditions {
			data := must.Get(os.ReadFile(filepath.Join(dir, c)))(t)
			said[c] = string(data)
		}
	} else {
		self, err := os.Executable()
		must.Do(t, err)
		open, err := os.MkdirTemp("", "conditions") // readable for each user
		must.Do(t, err)
		defer os.RemoveAll(open)
		data, err := os.ReadFile(self)
		if err == nil {
			err = os.Chmod(open, 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(open, "suite"), data, 0o755)
		}
		must.Do(t, err)
		var mu sync.Mutex
		var runs sync.WaitGroup
		for _, c := range conditions {
			cmd := commandOf(t, c, filepath.Join(open, "suite"))
			cmd.Dir = open // without a column of the table of hostile inputs
			runs.Go(func() {
				// Failing checks are rows; the case of no checks is detected below.
				out, _ := cmd.CombinedOutput()
				mu.Lock()
				defer mu.Unlock()
				said[c] = string(out)
			})
		}
		runs.Wait()
	}
	var rows []string
	holds := make(map[string]string) // by condition and check
	for _, c := range conditions {
		n := 0
		for _, m := range ended.FindAllStringSubmatch(said[c], -1) {
			if !slices.Contains(rows, m[2]) {
				rows = append(rows, m[2])
			}
			if holds[c+" "+m[2]] = "holds"; m[1] == "FAIL" {
				holds[c+" "+m[2]] = "fails"
				t.Logf("%s:\n%.2000s", c, said[c])
			}
			n++
		}
		if n == 0 {
			t.Fatalf("nothing ran as %s:\n%.3000s", c, said[c])
		}
	}
	slices.Sort(rows) // the order of their ends is random
	var b strings.Builder
	line := func(first string, of func(condition string) string) {
		fmt.Fprintf(&b, "%-40s", first)
		for _, c := range conditions {
			fmt.Fprintf(&b, "  %-11s", of(c))
		}
		b.WriteString("\n")
	}
	line("", func(c string) string { return c })
	for _, r := range rows {
		line(strings.ReplaceAll(r, "_", " "), func(c string) string {
			if how := holds[c+" "+r]; how != "" {
				return how
			}
			return "not offered"
		})
	}
	got := regexp.MustCompile(`(?m) +$`).ReplaceAllString(b.String(), "")
	if f := flag.Lookup("update"); f != nil && f.Value.String() == "true" {
		must.Do(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	if want, err := os.ReadFile(golden); err != nil || string(want) != got {
		t.Errorf("%s differs, %v; go test -tags=engine -run=TestConditions -update writes it:\n%s", golden, err, got)
	}
}
