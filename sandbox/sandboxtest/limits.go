package sandboxtest

import (
	"strings"
	"testing"

	"github.com/rathcluster/rath/sandbox"
)

// testDisk has commands write more than they may, where a look must find it.
func testDisk(t *testing.T, s *suite) {
	b := s.openSpec(t, sandbox.Spec{Dir: t.TempDir(), Limits: sandbox.Limits{Disk: 8 << 20}})
	for name, script := range map[string]string{
		"a large file":                  "head -c 64000000 /dev/zero > big",
		"many files":                    "i=0; while [ $i -lt 3000 ]; do echo x > f$i; i=$((i+1)); done",
		"temporary files":               `head -c 64000000 /dev/zero > "$TMPDIR/big"`,
		"a directory that is closed":    "mkdir d; head -c 64000000 /dev/zero > d/f; chmod 0 d",
		"below a directory that closed": "mkdir -p d/e; cd d/e; chmod 0 ..; head -c 64000000 /dev/zero > f",
		"deep":                          "i=0; while [ $i -lt 1000 ]; do mkdir d && cd d || exit 1; i=$((i+1)); done",
	} {
		// The sleep is not waited for: the command is killed before.
		e := b.sh("(" + script + "); sleep 1000")
		if e.Ended != sandbox.DiskFull || !strings.Contains(string(e.Stderr.Bytes()), "killed: ") {
			t.Errorf("%s: %s", name, describe(e))
		}
		// The sandbox is there as before.
		b.want(b.sh(`chmod 700 d; rm -rf * "$TMPDIR"/*; echo empty; ls`), sandbox.Exited, 0, "empty\n")
	}
	b.want(b.sh("dd if=/dev/zero of=sparse bs=1 count=1 seek=100000000 2>/dev/null; head -c 1000000 /dev/zero > f; sleep 0.3; echo fits"), sandbox.Exited, 0, "fits\n")
}

// testPIDs has a command start more than it may.
func testPIDs(t *testing.T, s *suite) {
	b := s.openSpec(t, sandbox.Spec{Dir: t.TempDir(), Limits: sandbox.Limits{PIDs: 30}})
	e := b.sh("i=0; while [ $i -lt 80 ]; do sleep 1000 & i=$((i+1)); done; wait; echo all")
	if strings.Contains(string(e.Stdout.Bytes()), "all") || e.Ended == sandbox.Exited && e.Code == 0 {
		t.Error(describe(e))
	}
	b.want(b.sh("echo again"), sandbox.Exited, 0, "again\n")
}

// testMemory has a command take more memory than it may.
func testMemory(t *testing.T, s *suite) {
	b := s.openSpec(t, sandbox.Spec{Dir: t.TempDir(), Limits: sandbox.Limits{Memory: 96 << 20}})
	b.installProbe()
	for name, argv := range map[string][]string{
		"itself":  {"./" + probeName, "take memory"},
		"a child": {"sh", "-c", "./" + probeName + " 'take memory'; exit 7"},
	} {
		if e := b.exec(sandbox.Cmd{Argv: argv}); e.Ended != sandbox.OutOfMem {
			t.Errorf("%s: %s", name, describe(e))
		}
		b.want(b.sh("echo again"), sandbox.Exited, 0, "again\n")
	}
	// A sandbox beside it has its own.
	b.want(s.open(t).sh("echo beside"), sandbox.Exited, 0, "beside\n")
}

// testCPU has a command use all processors for a second, of which it may have a part.
func testCPU(t *testing.T, s *suite) {
	b := s.openSpec(t, sandbox.Spec{Dir: t.TempDir(), Limits: sandbox.Limits{CPU: 0.3}})
	b.installProbe()
	if got := b.probe(nil, "use processors")["use processors"]; got != "succeeded" {
		t.Error(got)
	}
}
