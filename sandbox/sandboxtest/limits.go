package sandboxtest

import (
	"strings"
	"testing"

	"github.com/rathcluster/rath/sandbox"
)

// testDisk has commands exceed their limit of disk, which a scan must detect.
func testDisk(t *testing.T, s *suite) {
	b := s.openSpec(t, sandbox.Spec{Dir: t.TempDir(), Limits: sandbox.Limits{Disk: 8 << 20}})
	for _, tt := range []struct{ input, script string }{
		{"fill the disk by a file that is removed and held open", "exec 3> big; rm big; head -c 64000000 /dev/zero >&3; sleep 1000"},
		{"fill it by a removed temporary file of another process", `(exec 3> "$TMPDIR/big"; rm "$TMPDIR/big"; head -c 64000000 /dev/zero >&3; exec sleep 1000) & wait`},
		{"fill it by empty files", "i=0; while [ $i -lt 3000 ]; do : > f$i; i=$((i+1)); done"},
		{"fill the disk by one file", "head -c 64000000 /dev/zero > big"},
		{"fill it by many small files", "i=0; while [ $i -lt 3000 ]; do echo x > f$i; i=$((i+1)); done"},
		{"fill it by temporary files", `head -c 64000000 /dev/zero > "$TMPDIR/big"`},
		{"fill it, then close the directory", "mkdir d; head -c 64000000 /dev/zero > d/f; chmod 0 d"},
		{"fill it in a closed directory", "mkdir -p d/e; cd d/e; chmod 0 ..; head -c 64000000 /dev/zero > f"},
		{"fill it by directories, each in the one before", "i=0; while [ $i -lt 1000 ]; do mkdir d && cd d || exit 1; i=$((i+1)); done"},
	} {
		// The command is killed before the sleep ends.
		e := b.sh("(" + tt.script + "); sleep 1000")
		if e.Ended != sandbox.DiskFull || !strings.Contains(string(e.Stderr.Bytes()), "killed: ") {
			t.Errorf("%s: %s", tt.input, describe(e))
		}
		if strings.HasSuffix(tt.input, "empty files") && !strings.Contains(string(e.Stderr.Bytes()), "inodes") {
			t.Errorf("%s: the reason is %q", tt.input, e.Stderr.Bytes())
		}
		s.end(t, tt.input, how(e))
		// Commands can inspect a sandbox over its limit and free space in it, repeatedly.
		for range 2 {
			b.want(b.sh("echo $?"), sandbox.Exited, 0, "0\n")
		}
		// The sandbox works as before.
		b.want(b.sh(`chmod 700 d; rm -rf * "$TMPDIR"/*; echo empty; ls`), sandbox.Exited, 0, "empty\n")
	}
	// A command that may finish between two scans, and the command after it.
	fill := func(name string) {
		t.Helper()
		e := b.sh("head -c 24000000 /dev/zero > " + name)
		if e.Ended != sandbox.DiskFull || e.Code == 0 || !strings.Contains(string(e.Stderr.Bytes()), "limit") {
			t.Errorf("a quick command: %s", describe(e))
		}
	}
	fill("one")
	fill("two")
	b.want(b.sh("rm one; ls"), sandbox.Exited, 0, "two\n")
	fill("one")
	b.want(b.sh("rm one two; echo empty"), sandbox.Exited, 0, "empty\n")
	fill("one")
	b.want(b.sh("rm one"), sandbox.Exited, 0, "")
	e := b.sh("dd if=/dev/zero of=sparse bs=1 count=1 seek=100000000 2>/dev/null; head -c 1000000 /dev/zero > f; sleep 0.3; echo fits")
	b.want(e, sandbox.Exited, 0, "fits\n")
	s.end(t, "make a sparse file of more than the limit", how(e)+": what it holds counts")
}

// testPIDs has a command start more processes than its limit.
func testPIDs(t *testing.T, s *suite) {
	b := s.openSpec(t, sandbox.Spec{Dir: t.TempDir(), Limits: sandbox.Limits{PIDs: 30}})
	e := b.sh("i=0; while [ $i -lt 80 ]; do sleep 1000 & i=$((i+1)); done; wait; echo all")
	if strings.Contains(string(e.Stdout.Bytes()), "all") || e.Ended == sandbox.Exited && e.Code == 0 {
		t.Error(describe(e))
	}
	s.end(t, "start processes without end", "held at the limit")
	again := b.sh("echo again")
	b.want(again, sandbox.Exited, 0, "again\n")
	s.end(t, "run the next command after those", how(again))
}

// testMemory has a command use more memory than its limit.
func testMemory(t *testing.T, s *suite) {
	b := s.openSpec(t, sandbox.Spec{Dir: t.TempDir(), Limits: sandbox.Limits{Memory: 96 << 20}})
	b.installProbe()
	for _, tt := range []struct {
		input string
		argv  []string
	}{
		{"allocate more than the limit of memory", []string{"./" + probeName, "take memory"}},
		{"the same in a child", []string{"sh", "-c", "./" + probeName + " 'take memory'; exit 7"}},
		{"fill a memory file (memfd)", []string{"./" + probeName, "take a memory file"}},
	} {
		e := b.exec(sandbox.Cmd{Argv: tt.argv})
		if e.Ended != sandbox.OutOfMem {
			t.Errorf("%s: %s", tt.input, describe(e))
		}
		s.end(t, tt.input, how(e))
	}
	again := b.sh("echo again")
	b.want(again, sandbox.Exited, 0, "again\n")
	s.end(t, "run the next command after that", how(again))
	e := b.exec(sandbox.Cmd{Argv: []string{"./" + probeName, "take /dev/shm"}})
	if e.Ended == sandbox.Exited {
		_, out, _ := strings.Cut(string(e.Stdout.Bytes()), "\t")
		errno, _, _ := strings.Cut(out, "\t")
		if errno == "" {
			t.Error("there was no limit for /dev/shm:", describe(e))
		}
		s.end(t, "fill /dev/shm", "refused: "+errno)
	} else {
		s.end(t, "fill /dev/shm", how(e))
	}
	// The system can reclaim its cache of a file on a disk.
	e = b.exec(sandbox.Cmd{Argv: []string{"./" + probeName, "write a large file"}})
	end := how(e)
	if strings.Contains(string(e.Stdout.Bytes()), "succeeded") {
		end = "succeeded"
	}
	if inMemory(b.dir) == (end == "succeeded") || inMemory(b.dir) && e.Ended != sandbox.OutOfMem {
		t.Errorf("a large file, in memory %t: %s", inMemory(b.dir), describe(e))
	}
	if !inMemory(b.dir) {
		s.end(t, "write a file larger than the memory", end)
	} else {
		delete(s.due, "write a file larger than the memory")
	}
	// Another sandbox has a limit of its own.
	b.want(s.open(t).sh("echo beside"), sandbox.Exited, 0, "beside\n")
}

// testCPU has a command use all processors for a second, with a limit below that.
func testCPU(t *testing.T, s *suite) {
	b := s.openSpec(t, sandbox.Spec{Dir: t.TempDir(), Limits: sandbox.Limits{CPU: 0.3}})
	b.installProbe()
	if got := b.probe(nil, "use processors")["use processors"]; got.text != "succeeded" {
		t.Error(got.text)
	} else {
		s.end(t, "use both processors", "held at the limit")
	}
}
