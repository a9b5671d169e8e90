package local

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// TestFits compares the rejections of fits with the rejections of this machine's kernel.
func TestFits(t *testing.T) {
	arguments := func(n, each int) []string {
		argv := make([]string, 1, n+1)
		argv[0] = "/bin/true"
		for range n {
			argv = append(argv, strings.Repeat("x", each))
		}
		return argv
	}
	var stack unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_STACK, &stack))
	most := max(min(6<<20, int(min(stack.Cur, 1<<40))/4), 128<<10)
	for _, tt := range []struct {
		n, each int
		fits    bool
	}{
		{1, 128<<10 - 1, true},
		{1, 128 << 10, false},
		{most/10 - 100, 1, true}, // a byte, its terminator and a pointer
		{most/10 + 1, 1, false},
		{most / 104, 99, false}, // would fit without their pointers
		{most/108 - 10, 99, true},
		{400_000, 8, false},
	} {
		argv := arguments(tt.n, tt.each)
		if err := fits(argv, nil); (err == nil) != tt.fits {
			t.Errorf("%d arguments of %d bytes: %v", tt.n, tt.each, err)
		}
		cmd := exec.Cmd{Path: argv[0], Args: argv, Env: []string{}}
		if err := cmd.Run(); (err == nil) != tt.fits || err != nil && !errors.Is(err, unix.E2BIG) {
			t.Errorf("%d arguments of %d bytes: the kernel says %v", tt.n, tt.each, err)
		}
	}
}

// TestTooMuchIsNotHandedOver: a supervisor, with its limited memory, took longer to read
// hundreds of thousands of arguments than a command may take on a slow machine.
func TestTooMuchIsNotHandedOver(t *testing.T) {
	s, err := New(&Options{State: t.TempDir()}).Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: sandbox.IsolationProcess})
	must.Do(t, err)
	defer s.Close()
	e, err := s.Exec(t.Context(), sandbox.Cmd{Argv: append([]string{"true"}, make([]string, 400_000)...)})
	if err != nil || e.Ended != sandbox.Refused || e.Code != 127 || !strings.Contains(string(e.Stderr.Bytes()), "argument list too long") {
		t.Errorf("%+v, %v", e, err)
	}
	if w := s.(*box).ready.take(); w != nil {
		w.dismiss()
		t.Error("a supervisor was started for it")
	}
}
