package sandboxtest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// inputs are the hostile actions of a command, or of a file name that it left, each with
// the check of this suite that tries it and records its end with suite.end. A backend's
// ends are in testdata/hostile.<isolation>.txt of its package, beside its tests. The suite
// compares each end with the actual one, and the flag -update of its tests writes the file.
// A backend without the file must only pass the checks.
var inputs = []struct{ input, check string }{
	{"allocate more than the limit of memory", "limits/memory"},
	{"the same in a child", "limits/memory"},
	{"fill a memory file (memfd)", "limits/memory"},
	{"fill /dev/shm", "limits/memory"},
	{"write a file larger than the memory", "limits/memory"},
	{"run the next command after that", "limits/memory"},
	{"fill temporary files that are in memory", "limits/memory of files"},
	{"use both processors", "limits/processors"},
	{"start processes without end", "limits/processes"},
	{"run the next command after those", "limits/processes"},
	{"start threads without end", "limits/threads"},
	{"fill the disk by one file", "limits/disk"},
	{"fill it by temporary files", "limits/disk"},
	{"fill it by many small files", "limits/disk"},
	{"fill the disk by a file that is removed and held open", "limits/disk"},
	{"fill it by a removed temporary file of another process", "limits/disk"},
	{"fill it by empty files", "limits/disk"},
	{"fill it by directories, each in the one before", "limits/disk"},
	{"fill it, then close the directory", "limits/disk"},
	{"fill it in a closed directory", "limits/disk"},
	{"make a sparse file of more than the limit", "limits/disk"},
	{"leave a process in the background", "tree/background process"},
	{"leave the session by a double fork, outlive the command", "tree/detached process"},
	{"the same, holding the output open", "tree/detached process at the deadline"},
	{"hand on from process to process, each in a session of its own", "tree/relay of processes"},
	{"sleep past the deadline", "tree/deadline"},
	{"ignore each signal that can be ignored", "tree/deadline"},
	{"stop itself", "tree/deadline"},
	{"sleep past the deadline in a child", "tree/deadline"},
	{"turn without end", "tree/deadline"},
	{"be hit by alarms without end", "kernel/alarms"},
	{"run on when the sandbox is closed", "close/running command"},
	{"signal or limit the host's processes", "kernel/processes outside"},
	{"trace them or read their memory", "kernel/processes outside"},
	{"signal every process (kill -9 -1)", "kernel/processes outside"},
	{"signal the processes of another sandbox", "kernel/processes of another sandbox"},
	{"write to the first process's memory, read its environment", "kernel/processes outside"},
	{"speak to the daemon of its sandbox", "container/daemon"},
	{"write without end, and without a newline", "exec/output flood"},
	{"write to both streams in turn, a byte at a time", "exec/a byte at a time"},
	{"write bytes that are no text", "exec/binary output"},
	{"write what imitates our messages", "exec/imitated messages"},
	{"read nothing of an input without end", "exec/unread stdin"},
	{"end with 255", "exec/exit code"},
	{"end by a signal", "exec/signal"},
	{"end with a core dump", "exec/signal"},
	{"start what is missing or no program", "exec/not started"},
	{"start files that look like programs", "exec/no programs"},
	{"pass NUL in arguments or variables", "exec/senseless commands"},
	{"pass megabytes of arguments or variables", "exec/huge commands"},
	{"remove its own directory, or put a link in its place", "exec/own directory"},
	{"run in a directory outside", "exec/directory"},
	{"see variables of the host", "exec/environment"},
	{"use files that the host left open", "kernel/open files"},
	{"read, list or write outside by name", "kernel/files outside"},
	{"the same through links and /proc", "kernel/files outside"},
	{"move or link files over the border", "kernel/files outside"},
	{"make device nodes, open the memory", "kernel/files outside"},
	{"change modes, owners, times or attributes outside", "kernel/metadata outside"},
	{"set user IDs, give files to another user", "kernel/metadata outside"},
	{"reach addresses by TCP or UDP, IPv4 or IPv6", "kernel/network"},
	{"ask a name server", "kernel/network"},
	{"ask the metadata service of a cloud", "kernel/network"},
	{"reach sockets of the host, by name or abstract", "kernel/network"},
	{"open netlink, packet, raw, vsock or crypto sockets", "kernel/network"},
	{"pass by the proxy of a list of hosts", "kernel/network list"},
	{"use the proxy of another sandbox", "kernel/network list"},
	{"make namespaces, mounts, another root", "kernel/calls"},
	{"use bpf, perf, io_uring, userfaultfd, keys", "kernel/calls"},
	{"load modules, set clocks, start the machine again", "kernel/calls"},
	{"use System V and POSIX queues, watches of files", "kernel/calls"},
	{"make calls by other numbers (x32)", "kernel/calls"},
	{"make calls by the 32-bit entry", "kernel/calls"},
	{"have a name lead outside: relative, absolute", "files/escapes"},
	{"have a link lead outside: absolute, relative, chains, loops", "files/escapes"},
	{"have a link lead to /proc/self/root", "files/escapes"},
	{"have a link stand for the file itself", "files/escapes"},
	{"use names that are too long, hold NUL, go below a file", "files/escapes"},
	{"put a FIFO or a directory in the place of a file", "files/special files"},
	{"put a dangling link in the place of a file", "files/links"},
	{"put a second name of a file outside in its place", "files/links"},
	{"swap a directory for a link while files are read and written", "files/swap race"},
	{"fill a directory with more than is listed", "files/long list"},
}

// end records the end of a hostile input.
func (s *suite) end(t *testing.T, input, end string) {
	t.Helper()
	if !slices.Contains(s.expected(), input) {
		t.Errorf("the check says what came of %q, which is no row of the table", input)
	}
	delete(s.due, input)
	if s.file != "" {
		compare(t, s.file, input, end)
	}
}

// expected returns the inputs that the running check must try.
func (s *suite) expected() []string {
	var all []string
	for _, i := range inputs {
		if i.check == s.check {
			all = append(all, i.input)
		}
	}
	return all
}

// notOffered begins the end of an input against which a backend makes no promise.
const notOffered = "not offered: "

// begin prepares for the inputs of a check. The check does not run if why is not "".
func (s *suite) begin(t *testing.T, c check, why string) {
	s.check = c.name
	s.due = make(map[string]bool)
	for _, input := range s.expected() {
		if why == "" {
			s.due[input] = true
		} else if s.file != "" {
			compare(t, s.file, input, notOffered+why)
		}
	}
}

// finish checks that each input of the check was tried.
func (s *suite) finish(t *testing.T) {
	for input := range s.due {
		if !t.Failed() {
			t.Errorf("the check says nothing of %q", input)
		}
	}
}

// tableFile returns the backend's column of the table, or "" if it has none. Other systems
// offer less and have no column.
func tableFile(caps sandbox.Capabilities) string {
	name := filepath.Join("testdata", "hostile."+string(caps.Isolation)+".txt")
	if _, err := os.Stat(name); err != nil || runtime.GOOS != "linux" {
		return ""
	}
	return name
}

// End compares the end of a hostile input, in a test of another package, with its row in
// testdata/hostile.txt there. The flag -update of its tests writes the row.
func End(t *testing.T, input, end string) {
	t.Helper()
	compare(t, filepath.Join("testdata", "hostile.txt"), input, end)
}

// rowWidth is the width of the inputs in the files.
const rowWidth = 64

// table is locked by a check that reads or writes a file of rows.
var table sync.Mutex

// compare compares an end with its row in a file.
func compare(t *testing.T, file, input, end string) {
	t.Helper()
	table.Lock()
	defer table.Unlock()
	rows, err := readRows(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	i := slices.IndexFunc(rows, func(r [2]string) bool { return r[0] == input })
	if i >= 0 && rows[i][1] == end {
		return
	}
	if f := flag.Lookup("update"); f == nil || f.Value.String() != "true" {
		switch {
		case i < 0:
			t.Errorf("%s: %s: there is no such row in %s", input, end, file)
		case strings.HasPrefix(end, notOffered) && !strings.HasPrefix(rows[i][1], notOffered):
			t.Logf("%s: %s on this host; with it: %s", input, end, rows[i][1])
		default:
			t.Errorf("%s: %s; %s says: %s", input, end, file, rows[i][1])
		}
		return
	}
	if i < 0 {
		rows = append(rows, [2]string{input, end})
	} else {
		rows[i][1] = end
	}
	place := func(r [2]string) int {
		return slices.IndexFunc(inputs, func(in struct{ input, check string }) bool { return in.input == r[0] })
	}
	slices.SortStableFunc(rows, func(a, b [2]string) int { return place(a) - place(b) })
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%-*s  %s\n", rowWidth, r[0], r[1])
	}
	must.Do(t, os.WriteFile(file, []byte(b.String()), 0o644))
}

// readRows reads the inputs of a file and their ends.
func readRows(file string) ([][2]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var rows [][2]string
	for line := range strings.Lines(string(data)) {
		input, end, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok {
			return nil, fmt.Errorf("%s: a line without an end: %q", file, line)
		}
		rows = append(rows, [2]string{input, strings.TrimSpace(end)})
	}
	return rows, nil
}
