package sandboxtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rathcluster/rath/sandbox"
)

// probeName is the name under which the test binary tries what a confined
// command must not be able to do. It makes the system calls itself, so nothing
// depends on which programs are installed.
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
				fmt.Printf("%s\tsucceeded\n", name)
				continue
			}
		}
		fmt.Printf("%s\t%v\n", name, err)
	}
	os.Exit(0)
}

// installProbe copies the test binary into the sandbox.
func (b *box) installProbe() {
	b.t.Helper()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err != nil {
		b.t.Fatal(err)
	}
	// As the sandbox's own file: a command may be another user than this process.
	b.write(probeName, string(data))
	b.want(b.sh("chmod 755 "+probeName), sandbox.Exited, 0, "")
}

// probe makes the attempts in the sandbox and returns what came of each.
func (b *box) probe(env map[string]string, names ...string) map[string]string {
	b.t.Helper()
	e := b.exec(sandbox.Cmd{Argv: append([]string{"./" + probeName}, names...), Env: env})
	got := make(map[string]string)
	for _, l := range lines(e.Stdout.Bytes()) {
		if name, result, ok := strings.Cut(l, "\t"); ok {
			got[name] = result
		}
	}
	if e.Ended != sandbox.Exited || e.Code != 0 || len(got) != len(names) {
		b.t.Fatalf("the probe gave %d of %d answers: %s", len(got), len(names), describe(e))
	}
	return got
}

// denied checks that every attempt failed, with an error of the system and
// not of the probe. In a container, what is outside is not there at all.
func (b *box) denied(env map[string]string, names ...string) {
	b.t.Helper()
	allowed := []string{"permission denied", "operation not permitted", "not implemented", "not supported", "cross-device"}
	if b.Info().Isolation.AtLeast(sandbox.IsolationContainer) {
		allowed = append(allowed, "no such file or directory", "no such process")
	}
	for name, result := range b.probe(env, names...) {
		if !slices.ContainsFunc(allowed, func(a string) bool { return strings.Contains(result, a) }) {
			b.t.Errorf("%s: %s", name, result)
		}
	}
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
		"read", "read through a link", "read through a directory link", "read through /proc/self/root",
		"read through the host's root", "list", "write", "append", "truncate", "truncate by path", "truncate for reading", "truncate for nothing",
		"create", "create through a link", "mkdir", "symlink", "remove", "rename out", "rename in",
		"link in", "link out", "link inside", "read /etc/shadow", "list /root", "list /home", "list /", "list /tmp", "open /dev/mem", "device node",
		"read host environment", "read host command line", "read supervisor memory")
	unharmed(t, outside)
	if b.read("mine") != "x" {
		t.Error("the command's own file is gone")
	}
	// The same with what people have at hand.
	e := b.sh("cat '" + file + "' link-out dir-out/canary; echo x > '" + outside + "/new'; echo x >> link-out; ls '" + outside + "'; rm -rf '" + outside + "' dir-out/; cp '" + file + "' .")
	if strings.Contains(string(e.Stdout.Bytes()), secret) {
		t.Error(describe(e))
	}
	unharmed(t, outside)
}

func testMetadata(t *testing.T, s *suite) {
	outside, file := canary(t)
	before, err := os.Lstat(file)
	if err != nil {
		t.Fatal(err)
	}
	b := s.open(t)
	b.installProbe()
	b.link(file, "link-out")
	b.link(outside, "dir-out")
	b.denied(map[string]string{"OUTSIDE": outside},
		"chmod", "chmod through a link", "chmod by handle", "chmod through /proc/self/fd", "chmod the directory", "chmod a system file by descriptor",
		"chown", "lchown", "chtimes", "chtimes through a link", "setxattr", "set-user-ID file", "chown inside to another user")
	after, err := os.Lstat(file)
	if err != nil {
		t.Fatal(err)
	}
	if after.Mode() != before.Mode() || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the file outside changed from %v %v to %v %v", before.Mode(), before.ModTime(), after.Mode(), after.ModTime())
	}
	// Inside everything works, but for the bits that outlive the sandbox.
	for name, result := range b.probe(nil, "metadata inside") {
		if result != "succeeded" {
			t.Errorf("%s: %s", name, result)
		}
	}
	b.want(b.sh("touch f && chmod 6751 f && chmod -R u+w . && touch -t 200102030405.06 f && mkdir -p d && chmod 700 d && cp -p f d/g && tar cf a.tar f d && mkdir x && tar xf a.tar -C x && ls -l f x/d/g | cut -c1-10"),
		sandbox.Exited, 0, "-rwxr-x--x\n-rwxr-x--x\n")
	fi, err := os.Lstat(filepath.Join(b.dir, "f"))
	if err != nil || fi.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 || fi.ModTime().Year() != 2001 {
		t.Errorf("the file inside: %v %v, %v", fi.Mode(), fi.ModTime(), err)
	}
}

func testNetwork(t *testing.T, s *suite) {
	if s.caps.Networks[0] != string(sandbox.NetworkNone) {
		t.Fatal("a backend with kernel isolation says that commands have a network")
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	// In the temporary directory, because the path of a socket must be short.
	dir, err := os.MkdirTemp("", "sock")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	unix, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close()
	abstract, err := net.Listen("unix", "@rath-sandboxtest-"+strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	b := s.open(t)
	b.installProbe()
	b.denied(map[string]string{
		"TCP": tcp.Addr().String(), "UDP": udp.LocalAddr().String(), "UNIX": unix.Addr().String(), "ABSTRACT": abstract.Addr().String(),
	}, "tcp", "tcp listen", "udp", "unix", "abstract unix", "unix datagram pair", "netlink", "packet", "vsock", "alg", "raw")
}

func testProcesses(t *testing.T, s *suite) {
	b := s.open(t)
	b.installProbe()
	b.denied(map[string]string{"HOST_PID": strconv.Itoa(os.Getpid())},
		"signal the host", "signal the supervisor", "signal by pidfd", "ptrace the host", "read host memory", "limit the host", "renice the host", "renice the user", "bind the host to a processor")
	b.want(b.sh("kill -9 $PPID; echo still supervised"), sandbox.Exited, 0, "still supervised\n")
	// The only process that it may signal is itself.
	b.want(b.sh("kill -9 -1; echo alone"), sandbox.Exited, 0, "alone\n")
}

func testCalls(t *testing.T, s *suite) {
	b := s.open(t)
	b.installProbe()
	b.denied(nil,
		"mount", "umount", "unshare", "setns", "clone a user namespace", "clone3", "chroot", "pivot_root", "fsopen", "open_tree",
		"bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "keyctl", "add_key", "request_key",
		"kexec_load", "init_module", "finit_module", "delete_module", "reboot", "swapon", "settimeofday", "clock_settime", "sethostname",
		"open_by_handle_at", "process_vm_writev", "kcmp", "pidfd_getfd", "x32",
		"shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl",
		"mq_open", "mq_unlink", "mq_send", "mq_receive", "mq_notify", "inotify_init", "inotify_add_watch", "directory notification")
}

func testOpenFiles(t *testing.T, s *suite) {
	leak, err := leakFile(filepath.Join(t.TempDir(), "leaked"))
	if err != nil {
		t.Fatal(err)
	}
	defer leak()
	b := s.open(t)
	b.installProbe()
	for name, result := range b.probe(nil, "open files") {
		if result != "succeeded" {
			t.Errorf("%s: %s", name, result)
		}
	}
}

// testSibling has a command try to stop that of another sandbox of the same user.
func testSibling(t *testing.T, s *suite) {
	other := s.open(t)
	if s.caps.Isolation.AtLeast(sandbox.IsolationContainer) {
		// Each sandbox counts its own processes: those of the other one come to no number
		// as high as that of the command.
		other.sh("i=0; while [ $i -lt 500 ]; do (:); i=$((i+1)); done")
	}
	ended := make(chan sandbox.Exit, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		// The error comes with an Exit that is not the one wanted.
		e, _ := other.Exec(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "echo $$ > pid.new; mv pid.new pid; exec sleep 1000"}})
		ended <- e
	}()
	var pid string
	for pid == "" {
		data, err := os.ReadFile(filepath.Join(other.dir, "pid"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		pid = strings.TrimSpace(string(data))
	}
	b := s.open(t)
	b.installProbe()
	env := map[string]string{"HOST_PID": pid}
	b.denied(env, "signal the process", "signal the process group", "signal the thread", "signal any thread", "queue a signal", "queue a signal of a thread")
	b.probe(env, "signal by the owner of a pipe") // that no signal comes of it is what counts
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

// testMustWork keeps confinement from growing into uselessness.
func testMustWork(t *testing.T, s *suite) {
	b := s.open(t)
	b.installProbe()
	must := []string{"threads", "children", "pair", "memory file", "rename inside", "truncate inside", "signals inside", "own limits"}
	if !s.caps.Isolation.AtLeast(sandbox.IsolationContainer) { // where the temporary files are on a disk of their own
		must = append(must, "rename to the temporary files")
	}
	for name, result := range b.probe(nil, must...) {
		if result != "succeeded" {
			t.Errorf("%s: %s", name, result)
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
