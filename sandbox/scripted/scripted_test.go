package scripted_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/platform/scratch"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
	"github.com/rathcluster/rath/sandbox/scripted"
)

func TestMain(m *testing.M) {
	scratch.InMemory()
	os.Exit(m.Run())
}

// With -update the suite writes the backend's column of the table of hostile inputs.
var _ = flag.Bool("update", false, "write testdata")

func TestConformance(t *testing.T) {
	sandboxtest.TestBackend(t, func(*testing.T) sandbox.Backend { return scripted.New(nil) })
}

func open(t *testing.T, b *scripted.Backend) (sandbox.Sandbox, string) {
	t.Helper()
	dir := t.TempDir()
	box := must.Get(b.Open(t.Context(), sandbox.Spec{Dir: dir, MinIsolation: sandbox.IsolationProcess}))(t)
	t.Cleanup(func() { must.Report(t, box.Close()) })
	return box, dir
}

// TestScripts runs scripts like those of tests.
func TestScripts(t *testing.T) {
	for script, want := range map[string]string{
		"seq 3 | tail -n 2 | tr '23' 'bc'":                               "b\nc\n",
		"printf 'b\\na\\nb\\n' | sort -u | wc -l":                        "2\n",
		"mkdir -p a/b; echo x > a/b/c; cp a/b/c d; mv d a; cat a/*":      "x\n",
		"echo one > f; ln -s f l; cat l; rm f l; ls":                     "one\na\n",
		"cat /etc/passwd; ls /; cat /proc/self/environ; echo x > /x":     "",
		"seq 9 | grep -v '[1-7]' | head -n 1; [ -d a ] && echo yes":      "8\nyes\n",
		"f() { echo $1; }; for i in 1 2; do f $i; done; touch t; rm t":   "1\n2\n",
		"cd a; ln -s /etc out; ls out; cat out/passwd; echo x > out/new": "",
	} {
		box, dir := open(t, scripted.New(nil))
		must.Do(t, os.Mkdir(filepath.Join(dir, "a"), 0o755))
		e, err := box.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", script}})
		if err != nil || e.Ended != sandbox.Exited || string(e.Stdout.Bytes()) != want {
			t.Errorf("%s: %v, %+v, %q, want %q\n%s", script, err, e.Ended, e.Stdout.Bytes(), want, e.Stderr.Bytes())
		}
	}
}

// TestCommands: a Go function is a program like any other.
func TestCommands(t *testing.T) {
	b := scripted.New(&scripted.Options{Commands: map[string]func(context.Context, *scripted.Call) int{
		"shout": func(_ context.Context, c *scripted.Call) int {
			f, err := c.Open("said", os.O_CREATE|os.O_WRONLY, 0o644)
			if err == nil {
				_, err = fmt.Fprint(f, strings.ToUpper(strings.Join(c.Args[1:], " "))+c.Getenv("END"))
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				return 1
			}
			return 7
		},
	}})
	box, dir := open(t, b)
	e, err := box.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "mkdir d; cd d; shout so it is || echo $?"}, Env: map[string]string{"END": "!"}})
	said, readErr := os.ReadFile(filepath.Join(dir, "d", "said"))
	if err = errors.Join(err, readErr); err != nil || string(e.Stdout.Bytes()) != "7\n" || string(said) != "SO IT IS!" {
		t.Errorf("%v, %q, %q", err, e.Stdout.Bytes(), said)
	}
	if all, now := b.Opened(); len(all) != 1 || now != 1 || all[0].Dir != dir {
		t.Errorf("opened %+v, %d are open", all, now)
	}
}

// TestFaults: each fault occurs at its call, and leaves the documented state.
func TestFaults(t *testing.T) {
	type result struct {
		end     sandbox.End
		err     error
		written bool
	}
	fine := result{sandbox.Exited, nil, true}
	for _, tt := range []struct {
		fault scripted.Fault
		want  [3]result
	}{
		{scripted.Fault{Kind: scripted.LostAnswer, Call: 2}, [3]result{fine, {"", sandbox.ErrLost, true}, fine}},
		{scripted.Fault{Kind: scripted.Lost, Call: 2}, [3]result{fine, {"", sandbox.ErrLost, false}, {"", sandbox.ErrLost, false}}},
		{scripted.Fault{Kind: scripted.DiskFull, Call: 2}, [3]result{fine, {sandbox.DiskFull, nil, false}, fine}},
		{scripted.Fault{Kind: scripted.OutOfMem, Call: 1}, [3]result{{sandbox.OutOfMem, nil, false}, fine, fine}},
	} {
		t.Run(string(tt.fault.Kind), func(t *testing.T) {
			box, dir := open(t, scripted.New(&scripted.Options{Faults: []scripted.Fault{tt.fault}}))
			for i, want := range tt.want {
				name := fmt.Sprint("f", i)
				e, err := box.Exec(t.Context(), sandbox.Cmd{Argv: []string{"touch", name}})
				_, statErr := os.Stat(filepath.Join(dir, name))
				if e.Ended != want.end || !errors.Is(err, want.err) || (statErr == nil) != want.written {
					t.Errorf("call %d: %q, %v, file: %v, want %+v", i+1, e.Ended, err, statErr, want)
				}
			}
		})
	}
	t.Run("in the middle", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			box, dir := open(t, scripted.New(&scripted.Options{Faults: []scripted.Fault{{Kind: scripted.Lost, Delay: 200 * time.Millisecond}}}))
			_, err := box.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo x > begun; sleep 100; echo x > done"}})
			_, begun := os.Stat(filepath.Join(dir, "begun"))
			_, done := os.Stat(filepath.Join(dir, "done"))
			if !errors.Is(err, sandbox.ErrLost) || begun != nil || done == nil {
				t.Errorf("%v, begun: %v, done: %v", err, begun, done)
			}
		})
	})
	t.Run("open", func(t *testing.T) {
		b := scripted.New(&scripted.Options{Faults: []scripted.Fault{
			{Kind: scripted.OpenRefused, Call: 1}, {Kind: scripted.OpenSlow, Call: 2, Delay: 50 * time.Millisecond},
		}})
		spec := sandbox.Spec{Dir: t.TempDir(), MinIsolation: sandbox.IsolationProcess}
		if _, err := b.Open(t.Context(), spec); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("refused: %v", err)
		}
		began := time.Now()
		open(t, b)
		if d := time.Since(began); d < 50*time.Millisecond {
			t.Errorf("slow: %v", d)
		}
	})
}
