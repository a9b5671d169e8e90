//go:build unix

package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

func TestWithoutReexec(t *testing.T) {
	ready.Store(false)
	defer ready.Store(true)
	b := newDriver(&Options{State: t.TempDir()})
	if _, err := b.Probe(t.Context()); !errors.Is(err, ErrNoReexec) {
		t.Errorf("Probe = %v", err)
	}
	_, err := b.Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: sandbox.IsolationProcess})
	if !errors.Is(err, ErrNoReexec) || !strings.Contains(err.Error(), "local.Reexec()") {
		t.Errorf("Open = %v", err)
	}
}

// TestForeignState rejects a state directory that others could have prepared.
func TestForeignState(t *testing.T) {
	for name, prepare := range map[string]func(dir string) error{
		"link":         func(dir string) error { return os.Symlink(t.TempDir(), dir) },
		"open to all":  func(dir string) error { return errors.Join(os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777)) },
		"regular file": func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
	} {
		state := filepath.Join(t.TempDir(), "state")
		must.Do(t, prepare(state))
		s, err := newDriver(&Options{State: state}).Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: sandbox.IsolationProcess})
		if err == nil {
			s.Close()
			t.Errorf("%s: the state directory is used", name)
		}
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	state := t.TempDir()
	s := must.Get(newDriver(&Options{State: state}).Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: sandbox.IsolationProcess}))(t)
	// The command's changes to its temporary directory do not prevent its removal.
	must.Get(s.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", `mkdir -p "$TMPDIR/a/b" && touch "$TMPDIR/a/b/c" && chmod 000 "$TMPDIR/a/b" "$TMPDIR/a"`}}))(t)
	must.Report(t, s.Close())
	if names, err := os.ReadDir(state); err != nil || len(names) != 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

func BenchmarkExec(b *testing.B) {
	for _, level := range []sandbox.Isolation{"", sandbox.IsolationProcess} {
		backend := newDriver(&Options{State: b.TempDir(), Isolation: level})
		caps := must.Get(backend.Probe(b.Context()))(b)
		s := must.Get(backend.Open(b.Context(), sandbox.Spec{Dir: b.TempDir(), MinIsolation: sandbox.IsolationProcess}))(b)
		b.Run(string(caps.Isolation), func(b *testing.B) {
			for b.Loop() {
				if e, err := s.Exec(b.Context(), sandbox.Cmd{Argv: []string{"true"}}); err != nil || e.Ended != sandbox.Exited {
					b.Fatal(err, e.Ended)
				}
			}
		})
		must.Do(b, s.Close())
	}
}
