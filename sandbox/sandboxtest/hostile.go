package sandboxtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rathcluster/rath/sandbox"
)

// testHuge runs commands that are too large for any kernel to start.
func testHuge(t *testing.T, s *suite) {
	b := s.open(t)
	env := make(map[string]string)
	for i := range 100_000 {
		env[fmt.Sprintf("VARIABLE_%d", i)] = "a value that takes some room in each of them"
	}
	for name, c := range map[string]sandbox.Cmd{
		"one argument":   {Argv: []string{"echo", strings.Repeat("x", 1<<20)}},
		"all arguments":  {Argv: append([]string{"echo"}, strings.Split(strings.Repeat("argument ", 400_000), " ")...)},
		"an environment": {Argv: []string{"echo"}, Env: env},
	} {
		e := b.exec(c)
		if e.Ended != sandbox.Refused {
			t.Errorf("%s: %s", name, describe(e))
		}
		b.want(b.sh("echo again"), sandbox.Exited, 0, "again\n")
		s.end(t, "pass megabytes of arguments or variables", how(e))
	}
}

// testNoPrograms runs files that look like programs.
func testNoPrograms(t *testing.T, s *suite) {
	b := s.open(t)
	for name, text := range map[string]string{
		"loop":    "#!./loop\n",
		"missing": "#!/no/such/interpreter\n",
		"machine": "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 100),
		"empty":   "",
	} {
		b.write(name, text)
		b.want(b.sh("chmod 755 "+name), sandbox.Exited, 0, "")
		e := b.exec(sandbox.Cmd{Argv: []string{"./" + name}})
		if e.Ended != sandbox.Refused {
			t.Errorf("%s: %s", name, describe(e))
		}
		s.end(t, "start files that look like programs", how(e))
	}
}

// testImitation has a command write the messages of a backend's own protocols.
func testImitation(t *testing.T, s *suite) {
	b := s.open(t)
	text := "\x0b\x02\x00\x00\x00{}\x0a\xff\xff\xff\xff\r\n\r\n{\"Exit\":{\"Code\":0,\"Ended\":\"exited\"}}\ndata: {\"type\":\"execution_complete\"}\n\x1b[2J\x00\xfe"
	b.write("text", strings.Repeat(text, 1000))
	e := b.exec(sandbox.Cmd{Argv: []string{"sh", "-c", "cat text; cat text >&2; exit 7"}, Output: 1 << 20})
	b.want(e, sandbox.Exited, 7, strings.Repeat(text, 1000))
	if string(e.Stderr.Bytes()) != strings.Repeat(text, 1000) {
		t.Error("the other stream:", describe(e))
	}
	s.end(t, "write what imitates our messages", how(e)+", each byte is kept")
}

// testDribble has a command write to both streams in turn, a byte at a time.
func testDribble(t *testing.T, s *suite) {
	b := s.open(t)
	e := b.sh("i=0; while [ $i -lt 5000 ]; do printf o; printf e >&2; i=$((i+1)); done")
	b.want(e, sandbox.Exited, 0, strings.Repeat("o", 5000))
	if string(e.Stderr.Bytes()) != strings.Repeat("e", 5000) {
		t.Error("the other stream:", describe(e))
	}
	s.end(t, "write to both streams in turn, a byte at a time", how(e)+", each byte is kept")
}

// testOwnDirectory has commands remove the directory that they run in, and try to remove
// or replace the workspace itself.
func testOwnDirectory(t *testing.T, s *suite) {
	b := s.open(t)
	b.want(b.sh("mkdir -p d/e"), sandbox.Exited, 0, "")
	b.want(b.exec(sandbox.Cmd{Argv: []string{"sh", "-c", "rm -rf ../../d && echo removed"}, Dir: "d/e"}), sandbox.Exited, 0, "removed\n")
	if e, err := b.Exec(t.Context(), sandbox.Cmd{Argv: []string{"pwd"}, Dir: "d/e"}); err == nil {
		t.Error("a command ran in a directory that is gone:", describe(e))
	}
	// The outcomes of these differ; the sandbox works afterwards.
	b.sh(`cd / && rmdir "$HOME" 2>/dev/null; mv "$HOME" "$HOME.old" 2>/dev/null; ln -s /etc "$HOME/link"; rm -rf "$HOME" "$TMPDIR" 2>/dev/null`)
	b.want(b.sh(`echo kept > file && cat file && echo tmp > "$TMPDIR/file" && cat "$TMPDIR/file"`), sandbox.Exited, 0, "kept\ntmp\n")
	if got := b.read("file"); got != "kept\n" {
		t.Errorf("the file holds %q", got)
	} else {
		s.end(t, "remove its own directory, or put a link in its place", "the next command runs")
	}
}

// testThreads has a command start more threads than its limit of tasks.
func testThreads(t *testing.T, s *suite) {
	b := s.openSpec(t, sandbox.Spec{Dir: t.TempDir(), Limits: sandbox.Limits{PIDs: 40}})
	b.installProbe()
	e := b.exec(sandbox.Cmd{Argv: []string{"./" + probeName, "take threads"}})
	if strings.Contains(string(e.Stdout.Bytes()), "succeeded") {
		t.Error(describe(e))
	}
	s.end(t, "start threads without end", "held at the limit")
	b.want(b.sh("echo again"), sandbox.Exited, 0, "again\n")
}

// testMemoryFiles has a command write more to temporary files than its limit of memory,
// where they are in memory.
func testMemoryFiles(t *testing.T, s *suite) {
	b := s.openSpec(t, sandbox.Spec{Dir: t.TempDir(), Limits: sandbox.Limits{Memory: 96 << 20}})
	e := b.sh(`head -c 300000000 /dev/zero > "$TMPDIR/big" || exit 9`)
	if e.Ended == sandbox.Exited && e.Code == 0 {
		t.Error("there was no limit:", describe(e))
	}
	end := how(e)
	if e.Ended == sandbox.Exited {
		end = "no space is left"
	}
	s.end(t, "fill temporary files that are in memory", end)
	b.want(b.sh(`rm "$TMPDIR/big"; echo again`), sandbox.Exited, 0, "again\n")
}
