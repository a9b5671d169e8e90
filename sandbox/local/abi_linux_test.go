package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/sandbox/confinement"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
)

// TestConformanceABI runs the checks of the kernel's restrictions as on kernels with an
// earlier Landlock: 1 is Linux 5.13, 2 is 5.19, 3 is 6.2, 5 is 6.10, 6 is 6.12.
func TestConformanceABI(t *testing.T) {
	have, err := confinement.ABI(0)
	if err != nil {
		t.Fatalf("this kernel has no Landlock: %v", err)
	}
	for _, abi := range []int{1, 2, 3, 5, 6} {
		if abi > have {
			continue
		}
		t.Run(fmt.Sprint(abi), func(t *testing.T) {
			sandboxtest.TestKernel(t, func(t *testing.T) sandbox.Backend {
				b := newDriver(&Options{State: t.TempDir(), abi: abi})
				if c, err := b.Probe(t.Context()); err != nil || c.Isolation != sandbox.IsolationKernel {
					t.Fatalf("the probe found %+v, %v", c, err)
				}
				return b
			})
		})
	}
}

// TestReadOnlyIsNotTruncated opens a file that may be read, in ways that would shorten it.
func TestReadOnlyIsNotTruncated(t *testing.T) {
	have, err := confinement.ABI(0)
	if err != nil {
		t.Fatalf("this kernel has no Landlock: %v", err)
	}
	self, err := os.Executable()
	must.Do(t, err)
	for abi := 1; abi <= have; abi++ {
		dir := t.TempDir()
		file := filepath.Join(dir, "canary")
		must.Do(t, os.WriteFile(file, []byte("long"), 0o666))
		s := must.Get(newDriver(&Options{State: t.TempDir(), abi: abi, ReadOnly: []string{dir, self}}).Open(t.Context(), sandbox.Spec{Dir: t.TempDir()}))(t)
		for _, attempt := range []string{"truncate for reading", "truncate for nothing", "truncate", "truncate by path"} {
			// The test binary is the probe if it has the probe's name.
			if err := os.Symlink(self, filepath.Join(dir, "sandboxtest-probe")); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
			e, err := s.Exec(t.Context(), sandbox.Cmd{
				Argv: []string{filepath.Join(dir, "sandboxtest-probe"), attempt}, Env: map[string]string{"OUTSIDE": dir},
			})
			if out := string(e.Stdout.Bytes()); err != nil || !strings.Contains(out, "not permitted") && !strings.Contains(out, "permission denied") {
				t.Errorf("ABI %d: %s %s, %v", abi, out, e.Stderr.Bytes(), err)
			}
		}
		must.Report(t, s.Close())
		if data, err := os.ReadFile(file); err != nil || string(data) != "long" {
			t.Errorf("ABI %d: the file holds %q, %v", abi, data, err)
		}
	}
}
