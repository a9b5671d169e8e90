package sandboxtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/rathcluster/rath/sandbox"
)

func testEcho(t *testing.T, s *suite) {
	b := s.open(t)
	e := b.exec(sandbox.Cmd{Argv: []string{"echo", "one argument", "$HOME", "*"}})
	b.want(e, sandbox.Exited, 0, "one argument $HOME *\n")
	if len(e.Stderr.Bytes()) != 0 || e.Elapsed <= 0 {
		t.Error(describe(e))
	}
	e = b.sh("echo out; echo err >&2")
	b.want(e, sandbox.Exited, 0, "out\n")
	if string(e.Stderr.Bytes()) != "err\n" {
		t.Error(describe(e))
	}
}

func testExitCode(t *testing.T, s *suite) {
	b := s.open(t)
	for _, code := range []int{0, 1, 42, 127, 137, 255} {
		b.want(b.sh(fmt.Sprintf("exit %d", code)), sandbox.Exited, code, "")
	}
	s.end(t, "end with 255", how(b.sh("exit 255")))
}

func testSignal(t *testing.T, s *suite) {
	b := s.open(t)
	b.want(b.sh("kill -9 $$"), sandbox.Signaled, 137, "")
	e := b.sh("echo before; kill -TERM $$")
	b.want(e, sandbox.Signaled, 143, "before\n")
	s.end(t, "end by a signal", how(e))
	e = b.sh("kill -SEGV $$")
	if list, err := b.Files().List(t.Context(), ""); err != nil || len(list) != 0 {
		t.Errorf("a core dump is left: %v, %v", list, err)
	}
	s.end(t, "end with a core dump", how(e)+", no file is left")
}

func testNotStarted(t *testing.T, s *suite) {
	b := s.open(t)
	b.host("data", "no program")
	b.host("dir/file", "")
	for _, program := range []string{"no-such-program-anywhere", "./missing", "./data", "./dir", "/no/such/path"} {
		e := b.exec(sandbox.Cmd{Argv: []string{program}})
		s.end(t, "start what is missing or no program", how(e))
		if e.Ended != sandbox.Refused || e.Code == 0 || !strings.Contains(string(e.Stderr.Bytes()), strings.TrimPrefix(program, "./")) {
			t.Errorf("%s: %s", program, describe(e))
		}
	}
}

func testSenseless(t *testing.T, s *suite) {
	b := s.open(t)
	for _, c := range []sandbox.Cmd{
		{},
		{Argv: []string{""}},
		{Argv: []string{"echo", "a\x00b"}},
		{Argv: []string{"echo"}, Env: map[string]string{"": "x"}},
		{Argv: []string{"echo"}, Env: map[string]string{"A=B": "x"}},
		{Argv: []string{"echo"}, Env: map[string]string{"A": "x\x00"}},
	} {
		if e, err := b.Exec(t.Context(), c); err == nil {
			t.Errorf("%q %q ran: %s", c.Argv, c.Env, describe(e))
		}
	}
	b.want(b.sh("echo still works"), sandbox.Exited, 0, "still works\n")
	s.end(t, "pass NUL in arguments or variables", "an error before it starts")
}

func testStdin(t *testing.T, s *suite) {
	b := s.open(t)
	big := strings.Repeat("0123456789abcde\n", 20_000)
	e := b.exec(sandbox.Cmd{Argv: []string{"cat"}, Stdin: strings.NewReader(big), Output: len(big) + 2})
	b.want(e, sandbox.Exited, 0, big)
	b.want(b.exec(sandbox.Cmd{Argv: []string{"cat"}}), sandbox.Exited, 0, "")
	b.want(b.exec(sandbox.Cmd{Argv: []string{"cat"}, Stdin: strings.NewReader("")}), sandbox.Exited, 0, "")
}

func testUnreadStdin(t *testing.T, s *suite) {
	b := s.open(t)
	endless, never := io.Pipe() // a Read of it blocks until the test ends
	defer never.Close()
	for _, in := range []io.Reader{strings.NewReader(strings.Repeat("x", 10<<20)), endless} {
		e := b.exec(sandbox.Cmd{Argv: []string{"sh", "-c", "echo done"}, Stdin: in})
		b.want(e, sandbox.Exited, 0, "done\n")
		if in == endless {
			s.end(t, "read nothing of an input without end", how(e))
		}
	}
}

func testFailingStreams(t *testing.T, s *suite) {
	b := s.open(t)
	broken := errors.New("broken on our side")
	e, err := b.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "cat; echo end"}, Stdin: io.MultiReader(strings.NewReader("start\n"), iotest.ErrReader(broken)), Timeout: patience})
	if !errors.Is(err, broken) {
		t.Errorf("failing standard input: %v", err)
	}
	b.want(e, sandbox.Exited, 0, "start\nend\n")
	e, err = b.Exec(t.Context(), sandbox.Cmd{Argv: []string{"echo", "end"}, Offload: failingWriter{broken}, Timeout: patience})
	if !errors.Is(err, broken) {
		t.Errorf("failing offload: %v", err)
	}
	b.want(e, sandbox.Exited, 0, "end\n")
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func testEnvironment(t *testing.T, s *suite) {
	t.Setenv("RATH_TEST_CANARY", secret)
	b := s.open(t)
	e := b.exec(sandbox.Cmd{Argv: []string{"env"}, Env: map[string]string{"MINE": "a b=c\n", "LANG": "de_DE.UTF-8"}})
	out := string(e.Stdout.Bytes())
	if strings.Contains(out, secret) {
		t.Errorf("the host's environment is inherited:\n%s", out)
	}
	for _, want := range []string{"MINE=a b=c\n", "LANG=de_DE.UTF-8\n", "PATH=", "HOME=", "TMPDIR="} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the environment:\n%s", want, out)
		}
	}
	b.want(b.sh(`cd "$HOME" && pwd -P > home && cat home && cd / && cd "$TMPDIR" && echo x > probe && cat probe`), sandbox.Exited, 0, b.read("home")+"x\n")
	b.want(b.exec(sandbox.Cmd{Argv: []string{"env"}, Env: map[string]string{"PATH": "/nowhere"}}), sandbox.Refused, 127, "")
	s.end(t, "see variables of the host", "none is there")
}

func testDirectory(t *testing.T, s *suite) {
	b := s.open(t)
	b.host("sub/dir/file", "found\n")
	b.link("sub", "inside")
	for _, dir := range []string{"sub/dir", "./sub//dir/", "inside/dir"} {
		b.want(b.exec(sandbox.Cmd{Argv: []string{"cat", "file"}, Dir: dir}), sandbox.Exited, 0, "found\n")
	}
	outside, _ := canary(t)
	b.link(outside, "out")
	for _, dir := range []string{"..", "sub/../..", "/", outside, "out", "sub/dir/file"} {
		if e, err := b.Exec(t.Context(), sandbox.Cmd{Argv: []string{"pwd"}, Dir: dir}); !errors.Is(err, sandbox.ErrPath) {
			t.Errorf("Dir %q: %v, %s", dir, err, describe(e))
		}
	}
	s.end(t, "run in a directory outside", "ErrPath")
	if _, err := b.Exec(t.Context(), sandbox.Cmd{Argv: []string{"pwd"}, Dir: "missing"}); err == nil {
		t.Error("ran in a directory that is not there")
	}
}

func testBinaryOutput(t *testing.T, s *suite) {
	b := s.open(t)
	data := make([]byte, 4096)
	for i := range data {
		data[i] = byte(i * 7)
	}
	e := b.exec(sandbox.Cmd{Argv: []string{"cat"}, Stdin: bytes.NewReader(data)})
	if !bytes.Equal(e.Stdout.Bytes(), data) || e.Stdout.Total != 4096 || e.Stdout.Dropped() != 0 {
		t.Error(describe(e))
	}
	s.end(t, "write bytes that are no text", how(e)+", each byte is kept")
}

// lockedBuffer receives the backend's output while the test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func testFlood(t *testing.T, s *suite) {
	b := s.open(t)
	const total, kept = sandbox.MaxOffload + 3<<20, 1000
	offload := new(lockedBuffer)
	script := fmt.Sprintf("printf start; head -c %d /dev/zero; printf end; printf 'error' >&2", total-8)
	e := b.exec(sandbox.Cmd{Argv: []string{"sh", "-c", script}, Output: kept, Offload: offload})
	out := e.Stdout
	if e.Ended != sandbox.Exited || out.Total != total || len(out.Head) != kept/2 || len(out.Tail) != kept/2 || out.Dropped() != total-kept {
		t.Errorf("ended %q, total %d, head %d, tail %d", e.Ended, out.Total, len(out.Head), len(out.Tail))
	}
	if !bytes.HasPrefix(out.Head, []byte("start\x00")) || !bytes.HasSuffix(out.Tail, []byte("\x00end")) {
		t.Errorf("head %.20q, tail %.20q", out.Head, out.Tail)
	}
	if n := offload.Len(); n != sandbox.MaxOffload {
		t.Errorf("offloaded %d bytes, want %d", n, sandbox.MaxOffload)
	}
	s.end(t, "write without end, and without a newline", how(e)+", head and tail are kept")
	// Below the cap no output is lost, and each stream stays in order.
	offload = new(lockedBuffer)
	e = b.exec(sandbox.Cmd{Argv: []string{"sh", "-c", "i=0; while [ $i -lt 300 ]; do echo line $i; echo oops >&2; i=$((i+1)); done"}, Output: 64, Offload: offload})
	var want []string
	for i := range 300 {
		want = append(want, fmt.Sprintf("line %d", i))
	}
	got := slices.DeleteFunc(lines(offload.Bytes()), func(s string) bool { return s == "oops" })
	if !slices.Equal(got, want) {
		t.Errorf("offloaded %d lines, not the 300 written", len(got))
	}
	if !strings.HasPrefix(string(e.Stdout.Head), "line 0\nline 1\n") || !strings.HasSuffix(string(e.Stdout.Tail), "line 298\nline 299\n") {
		t.Errorf("head %q, tail %q", e.Stdout.Head, e.Stdout.Tail)
	}
}

func testParallel(t *testing.T, s *suite) {
	b := s.open(t)
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			want := fmt.Sprintf("number %d\n", i)
			e, err := b.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "read x; echo $x"}, Stdin: strings.NewReader(want), Timeout: patience})
			if err != nil || string(e.Stdout.Bytes()) != want || e.Ended != sandbox.Exited {
				t.Errorf("command %d: %v, %s", i, err, describe(e))
			}
		})
	}
	wg.Wait()
}
