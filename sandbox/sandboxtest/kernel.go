package sandboxtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// probeName is the name under which the test binary attempts the operations that a confined
// command must not be able to do. It makes the system calls itself, so the result does not
// depend on the installed programs.
const probeName = "sandboxtest-probe"

// Probe turns this process into the probe if it was started as one, and then
// does not return. TestMain calls it before m.Run.
func Probe() {
	if filepath.Base(os.Args[0]) != probeName {
		return
	}
	for _, name := range os.Args[1:] {
		err := fmt.Errorf("the probe knows no %q", name)
		if f, ok := attempts[name]; ok {
			if err = f(); err == nil {
				fmt.Printf("%s\t\tsucceeded\n", name)
				continue
			}
		}
		fmt.Printf("%s\t%s\t%v\n", name, errnoName(err), err)
	}
	os.Exit(0)
}

// installProbe copies the test binary into the sandbox.
func (b *box) installProbe() {
	b.t.Helper()
	self := must.Get(os.Executable())(b.t)
	data := must.Get(os.ReadFile(self))(b.t)
	// As the sandbox's own file: a command may run as another user than this process.
	b.write(probeName, string(data))
	b.want(b.sh("chmod 755 "+probeName), sandbox.Exited, 0, "")
}

// outcome is the result of an attempt: "succeeded" or an error, and the name of the
// system's error if it was one.
type outcome struct{ text, errno string }

// probe makes the attempts in the sandbox and returns the outcome of each.
func (b *box) probe(env map[string]string, names ...string) map[string]outcome {
	b.t.Helper()
	e := b.exec(sandbox.Cmd{Argv: append([]string{"./" + probeName}, names...), Env: env})
	got := make(map[string]outcome)
	for _, l := range lines(e.Stdout.Bytes()) {
		if f := strings.SplitN(l, "\t", 3); len(f) == 3 {
			got[f[0]] = outcome{f[2], f[1]}
		}
	}
	if e.Ended != sandbox.Exited || e.Code != 0 || len(got) != len(names) {
		b.t.Fatalf("the probe gave %d of %d answers: %s", len(got), len(names), describe(e))
	}
	return got
}

// attack is a hostile input of several attempts, all of which must fail.
type attack struct {
	input    string
	attempts []string
}

// denied checks that every attempt failed, with an error of the system and not of the
// probe, and records the outcome of each input. In a container, files and processes outside
// do not exist at all.
func (b *box) denied(env map[string]string, attacks ...attack) {
	b.t.Helper()
	allowed := []string{"permission denied", "operation not permitted", "not implemented", "not supported", "cross-device", "bad system call"}
	if b.Info().Isolation.AtLeast(sandbox.IsolationContainer) {
		allowed = append(allowed, "no such file or directory", "no such process")
	}
	var names []string
	for _, a := range attacks {
		names = append(names, a.attempts...)
	}
	got := b.probe(env, names...)
	for _, a := range attacks {
		by := make(map[string]outcome)
		for _, name := range a.attempts {
			by[name] = got[name]
			if !slices.ContainsFunc(allowed, func(a string) bool { return strings.Contains(got[name].text, a) }) {
				b.t.Errorf("%s: %s", name, got[name].text)
			}
		}
		b.s.end(b.t, a.input, refusals(by))
	}
}

// refusals returns the errors of attempts that all failed.
func refusals(by map[string]outcome) string {
	var all []string
	for _, o := range by {
		all = append(all, cmp.Or(o.errno, o.text))
	}
	slices.Sort(all)
	return "refused: " + strings.Join(slices.Compact(all), ", ")
}

func testOutside(t *testing.T, s *suite) {
	outside, file := canary(t)
	b := s.open(t)
	b.installProbe()
	b.host("mine", "x")
	b.link(file, "link-out")
	b.link(outside, "dir-out")
	env := map[string]string{"OUTSIDE": outside, "HOST_PID": strconv.Itoa(os.Getpid())}
	b.denied(env,
		attack{"read, list or write outside by name", []string{
			"read", "list", "write", "append", "truncate", "truncate by path", "truncate for reading", "truncate for nothing",
			"create", "mkdir", "symlink", "remove", "read /etc/shadow", "list /root", "list /home", "list /", "list /tmp",
			"read host environment", "read host command line", "read supervisor memory",
		}},
		attack{"the same through links and /proc", []string{
			"read through a link", "read through a directory link", "read through /proc/self/root", "read through the host's root", "create through a link",
		}},
		attack{"move or link files over the border", []string{"rename out", "rename in", "link in", "link out", "link inside"}},
		attack{"make device nodes, open the memory", []string{"open /dev/mem", "device node"}})
	unharmed(t, outside)
	if b.read("mine") != "x" {
		t.Error("the command's own file is gone")
	}
	// The same with everyday programs.
	e := b.sh("cat '" + file + "' link-out dir-out/canary; echo x > '" + outside + "/new'; echo x >> link-out; ls '" + outside + "'; rm -rf '" + outside + "' dir-out/; cp '" + file + "' .")
	if strings.Contains(string(e.Stdout.Bytes()), secret) {
		t.Error(describe(e))
	}
	unharmed(t, outside)
}

func testMetadata(t *testing.T, s *suite) {
	outside, file := canary(t)
	before, err := os.Lstat(file)
	must.Do(t, err)
	b := s.open(t)
	b.installProbe()
	b.link(file, "link-out")
	b.link(outside, "dir-out")
	b.denied(map[string]string{"OUTSIDE": outside},
		attack{"change modes, owners, times or attributes outside", []string{
			"chmod", "chmod through a link", "chmod by handle", "chmod through /proc/self/fd", "chmod the directory", "chmod a system file by descriptor",
			"chown", "lchown", "chtimes", "chtimes through a link", "setxattr",
		}},
		attack{"set user IDs, give files to another user", []string{"set-user-ID file", "chown inside to another user"}})
	after, err := os.Lstat(file)
	must.Do(t, err)
	if after.Mode() != before.Mode() || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the file outside changed from %v %v to %v %v", before.Mode(), before.ModTime(), after.Mode(), after.ModTime())
	}
	// Inside everything works, except the bits that outlive the sandbox.
	for name, result := range b.probe(nil, "metadata inside") {
		if result.text != "succeeded" {
			t.Errorf("%s: %s", name, result.text)
		}
	}
	b.want(b.sh("touch f && chmod 6751 f && chmod -R u+w . && touch -t 200102030405.06 f && mkdir -p d && chmod 700 d && cp -p f d/g && tar cf a.tar f d && mkdir x && tar xf a.tar -C x && ls -l f x/d/g | cut -c1-10 && [ f -ot x ] && echo old"),
		sandbox.Exited, 0, "-rwxr-x--x\n-rwxr-x--x\nold\n")
	fi, err := os.Lstat(filepath.Join(b.dir, "f"))
	if err != nil || fi.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		t.Errorf("the file inside: %v, %v", fi.Mode(), err)
	}
}

func testNetwork(t *testing.T, s *suite) {
	if s.caps.Networks[0] != string(sandbox.NetworkNone) {
		t.Fatal("a backend with kernel isolation says that commands have a network")
	}
	tcp := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer tcp.Close()
	udp := must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	defer udp.Close()
	// In the temporary directory, because the path of a socket must be short.
	dir := must.Get(os.MkdirTemp("", "sock"))(t)
	defer os.RemoveAll(dir)
	unix := must.Get(net.Listen("unix", filepath.Join(dir, "s")))(t)
	defer unix.Close()
	abstract := must.Get(net.Listen("unix", "@rath-sandboxtest-"+strconv.Itoa(os.Getpid())))(t)
	defer abstract.Close()
	b := s.open(t)
	b.installProbe()
	b.denied(map[string]string{
		"TCP": tcp.Addr().String(), "UDP": udp.LocalAddr().String(), "UNIX": unix.Addr().String(), "ABSTRACT": abstract.Addr().String(),
	}, attack{"reach addresses by TCP or UDP, IPv4 or IPv6", []string{"tcp", "tcp listen", "udp", "tcp of IPv6", "udp of IPv6"}},
		attack{"ask a name server", []string{"ask a name server"}},
		attack{"ask the metadata service of a cloud", []string{"connect to the metadata service"}},
		attack{"reach sockets of the host, by name or abstract", []string{"unix", "abstract unix", "unix datagram pair"}},
		attack{"open netlink, packet, raw, vsock or crypto sockets", []string{"netlink", "packet", "vsock", "alg", "raw"}})
}

func testProcesses(t *testing.T, s *suite) {
	b := s.open(t)
	b.installProbe()
	b.denied(map[string]string{"HOST_PID": strconv.Itoa(os.Getpid())},
		attack{"signal or limit the host's processes", []string{
			"signal the host", "signal the supervisor", "signal by pidfd", "limit the host", "renice the host", "renice the user", "bind the host to a processor",
		}},
		attack{"trace them or read their memory", []string{"ptrace the host", "read host memory"}},
		attack{"write to the first process's memory, read its environment", []string{"write the first process's memory", "read the first process's environment"}})
	b.want(b.sh("kill -9 $PPID; echo still supervised"), sandbox.Exited, 0, "still supervised\n")
	// The only process that it may signal is itself.
	e := b.sh("kill -9 -1; echo alone")
	b.want(e, sandbox.Exited, 0, "alone\n")
	s.end(t, "signal every process (kill -9 -1)", how(e)+", nothing else is hit")
}

func testCalls(t *testing.T, s *suite) {
	b := s.open(t)
	b.installProbe()
	b.denied(nil,
		attack{"make namespaces, mounts, another root", []string{
			"mount", "umount", "unshare", "setns", "clone a user namespace", "clone3", "chroot", "pivot_root", "fsopen", "open_tree", "open_by_handle_at",
		}},
		attack{"use bpf, perf, io_uring, userfaultfd, keys", []string{
			"bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "keyctl", "add_key", "request_key", "process_vm_writev", "kcmp", "pidfd_getfd",
		}},
		attack{"load modules, set clocks, start the machine again", []string{
			"kexec_load", "init_module", "finit_module", "delete_module", "reboot", "swapon", "settimeofday", "clock_settime", "sethostname",
		}},
		attack{"use System V and POSIX queues, watches of files", []string{
			"shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl",
			"mq_open", "mq_unlink", "mq_send", "mq_receive", "mq_notify", "inotify_init", "inotify_add_watch", "directory notification",
		}},
		attack{"make calls by other numbers (x32)", []string{"x32"}},
		attack{"make calls by the 32-bit entry", []string{"32-bit entry"}})
}

// testAlarms lets a command with a constantly firing timer run into its deadline.
func testAlarms(t *testing.T, s *suite) {
	b := s.open(t)
	b.installProbe()
	e := b.ends(t.Context(), sandbox.Cmd{Argv: []string{"./" + probeName, "alarms"}, Timeout: 2 * short}, sandbox.Deadline)
	s.end(t, "be hit by alarms without end", how(e))
}

// testDaemon has a command search for the socket of the daemon that runs it. The command
// must not reach the socket, so its messages do not matter; see also
// internal/sandbox/execd.
func testDaemon(t *testing.T, s *suite) {
	b := s.open(t)
	b.installProbe()
	b.denied(nil, attack{"speak to the daemon of its sandbox", []string{"find the daemon's socket", "connect to the daemon", "make a socket beside it"}})
}

func testOpenFiles(t *testing.T, s *suite) {
	leak := must.Get(leakFile(filepath.Join(t.TempDir(), "leaked")))(t)
	defer leak()
	b := s.open(t)
	b.installProbe()
	if result := b.probe(nil, "open files")["open files"]; result.text != "succeeded" {
		t.Error(result.text)
	} else {
		s.end(t, "use files that the host left open", "none is open")
	}
}

// testSibling has a command try to stop a command of another sandbox of the same user.
func testSibling(t *testing.T, s *suite) {
	other := s.open(t)
	if s.caps.Isolation.AtLeast(sandbox.IsolationContainer) {
		// Each sandbox numbers its own processes. Let the other sandbox's numbers grow
		// beyond this sandbox's, so that no process here has the command's number.
		other.sh("i=0; while [ $i -lt 500 ]; do (:); i=$((i+1)); done")
	}
	ended, began := make(chan sandbox.Exit, 1), make(firstOutput, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		// The Exit of an error differs from the expected one.
		e, _ := other.Exec(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "echo $$; exec sleep 1000"}, Offload: began})
		ended <- e
	}()
	var pid string
	select {
	case pid = <-began:
	case e := <-ended:
		t.Fatal("the other sandbox's command ended:", describe(e))
	}
	b := s.open(t)
	b.installProbe()
	env := map[string]string{"HOST_PID": pid}
	b.denied(env, attack{"signal the processes of another sandbox", []string{
		"signal the process", "signal the process group", "signal the thread", "signal any thread", "queue a signal", "queue a signal of a thread",
	}})
	b.probe(env, "signal by the owner of a pipe") // the check is that no signal arrives
	select {
	case e := <-ended:
		t.Fatal("the other sandbox's command ended:", describe(e))
	default:
	}
	stop()
	if e := <-ended; e.Ended != sandbox.Cancelled {
		t.Error("the other sandbox's command:", describe(e))
	}
}

// firstOutput receives the first output of a command, without surrounding white space.
type firstOutput chan string

func (f firstOutput) Write(p []byte) (int, error) {
	select {
	case f <- string(bytes.TrimSpace(p)):
	default:
	}
	return len(p), nil
}

// testMustWork makes sure that confinement leaves the necessary operations working.
func testMustWork(t *testing.T, s *suite) {
	b := s.open(t)
	b.installProbe()
	must := []string{"threads", "children", "pair", "memory file", "rename inside", "truncate inside", "signals inside", "own limits"}
	if !s.caps.Isolation.AtLeast(sandbox.IsolationContainer) { // where the temporary files are on a disk of their own
		must = append(must, "rename to the temporary files")
	}
	for name, result := range b.probe(nil, must...) {
		if result.text != "succeeded" {
			t.Errorf("%s: %s", name, result.text)
		}
	}
	b.want(b.sh(`
set -e
echo a > a; mv a b; ln -s b c; cat c; rm b c
mkdir -p d/e && rmdir -p d/e
mkfifo p; (echo through a fifo > p &); cat p; rm p
x=$(mktemp); echo tmp > "$x"; cat "$x"; mv "$x" moved; cat moved
echo null > /dev/null; head -c 3 /dev/zero | wc -c | tr -d ' '; head -c 3 /dev/urandom | wc -c | tr -d ' '
(sleep 0.01; exit 3) & wait $! || echo waited $?
`), sandbox.Exited, 0, "a\nthrough a fifo\ntmp\ntmp\n3\n3\nwaited 3\n")
}
