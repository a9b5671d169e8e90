package sandboxtest

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

func testClose(t *testing.T, s *suite) {
	b := s.open(t)
	b.write("kept", "x")
	for range 2 {
		if err := b.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	if _, err := b.Exec(t.Context(), sandbox.Cmd{Argv: []string{"true"}}); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("Exec after Close: %v", err)
	}
	for method, err := range calls(t, b, "kept") {
		if !errors.Is(err, sandbox.ErrClosed) {
			t.Errorf("%s after Close: %v", method, err)
		}
	}
	names, err := os.ReadDir(b.dir)
	if err != nil || len(names) != 1 {
		t.Errorf("the directory holds %v, %v", names, err)
	}
}

func testCloseRunning(t *testing.T, s *suite) {
	b := s.open(t)
	running := make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := b.Exec(t.Context(), sandbox.Cmd{
			Argv: []string{"sh", "-c", beat + " & while [ ! -s beat ]; do sleep 0.01; done; echo began; sleep 100"}, Timeout: 10 * patience,
			Offload: callback(func() { once.Do(func() { close(running) }) }),
		})
		if !errors.Is(err, sandbox.ErrClosed) {
			t.Errorf("the running command ended with %v", err)
		}
	})
	<-running
	if err := b.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	wg.Wait()
	// Its output is visible where the files are a directory of the host.
	before, _ := os.ReadFile(filepath.Join(b.dir, "beat"))
	s.openSpec(t, sandbox.Spec{Dir: b.dir}).sh("sleep 0.2")
	end := "killed"
	if after, _ := os.ReadFile(filepath.Join(b.dir, "beat")); len(after) != len(before) {
		t.Errorf("a process lives on: beat grew from %d to %d bytes", len(before), len(after))
		end = "lives on"
	}
	s.end(t, "run on when the sandbox is closed", end)
}

func testCloseUnfinished(t *testing.T, s *suite) {
	b := s.open(t)
	w := must.Get(b.Files().Create(t.Context(), "unfinished"))(t)
	must.Get(io.WriteString(w, "half"))(t)
	must.Do(t, b.Close())
	if err := w.Close(); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("closing the file after the sandbox: %v", err)
	}
	if names, err := os.ReadDir(b.dir); err != nil || len(names) != 0 {
		t.Errorf("the directory holds %v, %v", names, err)
	}
}

func testLimits(t *testing.T, s *suite) {
	for name, l := range map[string]sandbox.Limits{
		"CPU": {CPU: 0.5}, "Memory": {Memory: 64 << 20}, "Disk": {Disk: 1 << 30}, "PIDs": {PIDs: 100},
	} {
		sb, err := s.backend.Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: s.caps.Isolation, Limits: l})
		if err == nil {
			sb.Close()
		}
		if slices.Contains(s.caps.Limits, name) {
			if err != nil {
				t.Errorf("the limit %s is offered and refused: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), name) {
			t.Errorf("a limit %s that is not enforced: %v", name, err)
		}
	}
	if sb, err := s.backend.Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: "unheard-of"}); !errors.Is(err, sandbox.ErrUnsupported) {
		if err == nil {
			sb.Close()
		}
		t.Errorf("an unknown isolation: %v", err)
	}
}

func testWeak(t *testing.T, s *suite) {
	for _, least := range []sandbox.Isolation{"", sandbox.IsolationKernel} {
		sb, err := s.backend.Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: least})
		if err == nil {
			sb.Close()
		}
		if !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("a weak backend opened for MinIsolation %q: %v", least, err)
		}
	}
}

func testNoDirectory(t *testing.T, s *suite) {
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, nil, 0o644))
	for _, dir := range []string{filepath.Join(t.TempDir(), "missing"), file} {
		sb, err := s.backend.Open(t.Context(), sandbox.Spec{Dir: dir, MinIsolation: s.caps.Isolation})
		if err == nil {
			sb.Close()
			t.Errorf("opened over %q", dir)
		}
	}
}
