package sandboxtest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/sandbox"
)

var update = flag.Bool("update", false, "write testdata/hostile.txt")

// hostile is what a hostile command may try, and the checks that try it: names of this
// suite, or FILE:TEST of another package. Where there is none, lacks says why.
var hostile = []struct {
	input, checks, lacks string
}{
	{"allocate more than the limit of memory", "limits/memory", ""},
	{"fill temporary files that are in memory", "limits/memory of files", ""},
	{"fill /dev/shm and memfd", "", "not tried: the same account as any memory"},
	{"start processes without end", "limits/processes", ""},
	{"start threads without end", "limits/threads", ""},
	{"start processes, then ask for another command", "limits/processes", ""},
	{"leave the session by a double fork, outlive the command", "tree/detached process", ""},
	{"the same, holding the output open, at the deadline", "tree/detached process at the deadline", ""},
	{"ignore signals, stop itself, loop", "tree/deadline", ""},
	{"signal all processes, and the supervisor", "kernel/processes outside", ""},
	{"trace or signal another sandbox", "kernel/processes of another sandbox", ""},
	{"read memory and environment of the host's processes", "kernel/files outside", ""},
	{"write without end, and without a newline", "exec/output flood", ""},
	{"write to both streams, a byte at a time", "exec/a byte at a time", ""},
	{"write bytes that are no text", "exec/binary output", ""},
	{"write what imitates our messages", "exec/imitated messages", ""},
	{"read no input", "exec/unread stdin", ""},
	{"end by any code or signal", "exec/exit code, exec/signal", ""},
	{"start what is no program", "exec/not started, exec/no programs", ""},
	{"pass arguments or variables that are too large, or NUL", "exec/huge commands, exec/senseless commands", ""},
	{"fill the disk by one file, by many, by deep directories", "limits/disk", ""},
	{"leave deep or closed directories to be removed", "limits/disk, sandbox/remove_test.go:TestRemoveTree", ""},
	{"leave deep directories to a snapshot", "workspace/hostile_unix_test.go:TestDeepTree", ""},
	{"leave FIFOs, sockets and hard links to a snapshot", "workspace/hostile_unix_test.go:TestRefused, workspace/hostile_unix_test.go:TestHardLinks", ""},
	{"change a file while a snapshot reads it", "", "not tried here: no command runs during a snapshot"},
	{"change protected paths, behind links and closed directories", "workspace/take_test.go:TestTakePutsBack", ""},
	{"put a FIFO in the place of a file", "files/special files", ""},
	{"put a link in the place of a file or directory", "files/escapes, files/links", ""},
	{"swap a directory for a link while files are read", "files/swap race", ""},
	{"upload a hostile archive", "", "no backend takes archives"},
	{"change metadata outside, set user IDs", "kernel/metadata outside", ""},
	{"reach the network, in any family", "kernel/network", ""},
	{"reach hosts that no list names, private addresses", "kernel/network list", ""},
	{"make dangerous system calls", "kernel/calls", ""},
	{"use files that the host left open", "kernel/open files", ""},
	{"use the processor without end", "limits/processors, tree/deadline", ""},
	{"ask the daemon of a container with forged messages", "", "not tried: its socket is out of sight of commands"},
	{"remove or replace its own directory", "exec/own directory", ""},
	{"live on when the host is killed", "sandbox/local/reap_linux_test.go:TestHostKilled", ""},
	{"live on when the sandbox is closed", "close/running command", ""},
}

// drivers are the backends by what they offer where a host allows all of it.
var drivers = []struct {
	name string
	caps sandbox.Capabilities
}{
	{"scripted", sandbox.Capabilities{Isolation: sandbox.IsolationProcess, WholeTree: true, Networks: []string{"none"}}},
	{"local", sandbox.Capabilities{
		Isolation: sandbox.IsolationKernel, WholeTree: true, Networks: []string{"none", "list", "read_only"},
		Limits: []string{sandbox.LimitMemory, sandbox.LimitDisk, sandbox.LimitCPU, sandbox.LimitPIDs},
	}},
	{"docker", sandbox.Capabilities{
		Isolation: sandbox.IsolationContainer, WholeTree: true, Networks: []string{"none", "list", "read_only"},
		Limits: []string{sandbox.LimitMemory, sandbox.LimitDisk, sandbox.LimitCPU, sandbox.LimitPIDs},
	}},
}

// TestHostileTable prints which driver's tests try which input, and fails if a check of
// the table is not there.
func TestHostileTable(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "%-60s %-9s %-9s %-9s %s\n", "a command may", "scripted", "local", "docker", "checks")
	for _, h := range hostile {
		var marks []string
		for _, d := range drivers {
			mark := "-"
			for c := range strings.SplitSeq(h.checks, ", ") {
				if tried(t, c, d.caps) {
					mark = "tried"
				}
			}
			marks = append(marks, fmt.Sprintf("%-9s", mark))
		}
		fmt.Fprintf(&b, "%-60s %s %s%s\n", h.input, strings.Join(marks, " "), h.checks, h.lacks)
	}
	name := filepath.Join("testdata", "hostile.txt")
	if *update {
		if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(name); err != nil || string(want) != b.String() {
		t.Errorf("%s differs (go test ./sandbox/sandboxtest -update rewrites it): %v\n%s", name, err, b.String())
	}
}

// tried reports whether a check runs for a backend. A test of another package does.
func tried(t *testing.T, name string, c sandbox.Capabilities) bool {
	if name == "" {
		return false
	}
	if file, test, ok := strings.Cut(name, ":"); ok {
		data, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(file)))
		if err != nil || !strings.Contains(string(data), "func "+test+"(t *testing.T)") {
			t.Errorf("there is no test %s: %v", name, err)
		}
		// The files of a workspace are the same with each backend.
		return !strings.HasPrefix(file, "sandbox/local/") || c.Isolation == sandbox.IsolationKernel
	}
	i := slices.IndexFunc(checks, func(k check) bool { return k.name == name })
	if i < 0 {
		t.Errorf("the suite has no check %q", name)
		return false
	}
	return checks[i].needs(c)
}
