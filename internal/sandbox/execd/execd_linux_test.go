package execd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/platform/scratch"
	"github.com/rathcluster/rath/internal/sandbox/directory"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	Reexec(os.Args)
	sandboxtest.Probe()
	scratch.InMemory()
	// The checks of the suite wait more than they compute.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// host opens sandboxes whose daemon is a goroutine of this process.
type host struct {
	state string
	pod   bool // over TLS, as in a pod
}

func (host) Name() string { return "daemon" }

func (h host) Probe(ctx context.Context) (sandbox.Capabilities, error) {
	c, err := local.New(&local.Options{State: h.state}).Probe(ctx)
	c.Limits = []string{sandbox.LimitDisk, sandbox.LimitPIDs}
	if !h.pod {
		c.Networks = []string{string(sandbox.NetworkNone)}
	}
	c.Services = false // its network is this process's network
	return c, err
}

func (h host) Resolve(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	c, err := h.Probe(ctx)
	if names := c.Unenforced(s.Limits); err == nil && (len(names) > 0 || !c.Isolation.AtLeast(s.MinIsolation)) {
		err = fmt.Errorf("%w: %s", sandbox.ErrUnsupported, strings.Join(names, ", "))
	}
	n := cmp.Or(s.Network, sandbox.NetworkNone)
	if err == nil && (!slices.Contains(c.Networks, n.Kind()) || s.Image != "") {
		err = fmt.Errorf("%w: image %q, network %q", sandbox.ErrUnsupported, s.Image, n)
	}
	if err == nil && s.Services {
		err = fmt.Errorf("%w: services", sandbox.ErrUnsupported)
	}
	return sandbox.Info{Isolation: c.Isolation, Network: n, Limits: s.Limits, WholeTree: true}, err
}

func (h host) Open(ctx context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	c, err := h.Resolve(ctx, s)
	if err != nil {
		return nil, err
	}
	files, err := directory.Open(s.Dir, nil)
	if err != nil {
		return nil, err
	}
	c.Dir = files.Name()
	b := &hostBox{files: files, info: c, ended: make(chan error, 1)}
	begin := start
	if h.pod {
		begin = startPod
	}
	if b.Client, err = begin(ctx, files.Name(), Opening{Limits: s.Limits, Network: s.Network, Authority: s.Authority}, b.ended); err != nil {
		return nil, errors.Join(err, files.Close())
	}
	if s.Network.Listed() {
		b.Carry(s.Proxy)
	}
	return b, nil
}

// lease is longer than any test takes.
const lease = time.Minute

// stateDir creates a directory for a daemon that commands of another user may traverse.
func stateDir() (string, error) {
	dir, err := os.MkdirTemp("", "rath-daemon-")
	if err != nil {
		return "", err
	}
	return dir, errors.Join(os.Chmod(dir, 0o711), os.Mkdir(filepath.Join(dir, "state"), 0o711))
}

// start starts a daemon over a workspace and becomes its holder.
func start(ctx context.Context, workspace string, o Opening, ended chan<- error) (*Client, error) {
	dir, err := stateDir()
	if err != nil {
		return nil, err
	}
	d := &server{socketDir: dir, state: filepath.Join(dir, "state"), workspace: workspace, oomKills: func() int { return 0 }}
	go d.live(dir, ended, func() error { return d.serve(lease) })
	c, err := Dial(ctx, dir, lease)
	if err != nil {
		return nil, err
	}
	if _, err := c.Open(ctx, o); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// pods gives each pod an address of its own.
var pods atomic.Int32

func podAddress() string {
	n := pods.Add(1)
	return fmt.Sprintf("127.3.%d.%d", n/250, n%250+1)
}

// startPod does the same as in a pod.
func startPod(ctx context.Context, workspace string, o Opening, ended chan<- error) (*Client, error) {
	keys, err := NewKeys()
	if err != nil {
		return nil, err
	}
	ip := podAddress()
	if err := servePodAt(ip, workspace, keys, ended); err != nil {
		return nil, err
	}
	c, err := DialTLS(ctx, ip, keys, lease)
	if err != nil {
		return nil, err
	}
	if _, err := c.Open(ctx, o); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// servePodAt serves a workspace at an address of the loopback.
func servePodAt(ip, workspace string, keys *Keys, ended chan<- error) error {
	dir, err := stateDir()
	if err != nil {
		return err
	}
	config, err := daemonEnd(keys.Daemon)
	if err != nil {
		return err
	}
	l, err := tls.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(Port)), config)
	if err != nil {
		return err
	}
	d := &server{state: filepath.Join(dir, "state"), workspace: workspace, oomKills: func() int { return 0 }, carriers: make(chan *stream, mostCarriers)}
	go d.live(dir, ended, func() error { return d.accept(l, lease) })
	return nil
}

// live runs a daemon as a goroutine.
func (d *server) live(dir string, ended chan<- error, serve func() error) {
	err := serve()
	if d.box != nil {
		err = errors.Join(err, d.box.Close())
	}
	ended <- errors.Join(err, os.RemoveAll(dir))
}

// hostBox is a sandbox over a Client.
type hostBox struct {
	*Client
	files *directory.Directory
	info  sandbox.Info
	ended chan error
	once  sync.Once
	err   error
}

func (b *hostBox) Files() sandbox.Files { return b.files }
func (b *hostBox) Info() sandbox.Info   { return b.info }

func (b *hostBox) Exec(ctx context.Context, c sandbox.Cmd) (sandbox.Exit, error) {
	if err := b.files.Enter(); err != nil {
		return sandbox.Exit{}, err
	}
	defer b.files.Leave()
	e, err := b.Client.Exec(ctx, c)
	if errors.Is(err, sandbox.ErrLost) {
		err = sandbox.ErrClosed
	}
	return e, err
}

func (b *hostBox) Close() error {
	b.once.Do(func() {
		b.files.Shut()
		b.err = b.Client.Close()
		<-b.ended
		b.files.Wait()
		b.err = errors.Join(b.err, b.files.Close())
	})
	return b.err
}

func TestConformance(t *testing.T) {
	sandboxtest.TestBackend(t, func(t *testing.T) sandbox.Backend { return host{state: t.TempDir()} })
}

// TestPodKernel runs the checks of the kernel's restrictions over TLS, where commands may
// have a list of hosts; sandbox/kubernetes runs the whole suite in this way.
func TestPodKernel(t *testing.T) {
	sandboxtest.TestKernel(t, func(t *testing.T) sandbox.Backend { return host{state: t.TempDir(), pod: true} })
}

// TestStrangers: peers without the keys of a daemon try to hold it, and a daemon with other
// keys tries to be held. Both fail, and the holder still succeeds.
func TestStrangers(t *testing.T) {
	keys := must.Get(NewKeys())(t)
	others := must.Get(NewKeys())(t)
	ip, ended := podAddress(), make(chan error, 1)
	must.Do(t, servePodAt(ip, t.TempDir(), keys, ended))
	// A peer that has the daemon's certificate, and presents none or another one.
	none, another := keys.holder.Clone(), keys.holder.Clone()
	none.Certificates, another.Certificates = nil, others.holder.Certificates
	for name, config := range map[string]*tls.Config{"no certificate": none, "another certificate": another} {
		c, err := DialTLS(t.Context(), ip, &Keys{holder: config}, lease)
		if err == nil { // the daemon rejects after this end has accepted
			_, err = c.Open(t.Context(), Opening{})
			_ = c.hold.Close() // the daemon has closed it
		}
		if err == nil {
			t.Errorf("%s: the daemon was opened", name)
		}
	}
	// A silent peer, or a peer without TLS, does not block the others.
	silent := must.Get(net.Dial("tcp", net.JoinHostPort(ip, strconv.Itoa(Port))))(t)
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := DialTLS(ctx, ip, others, lease); err == nil {
		t.Error("a daemon with other keys was held")
	}
	c := must.Get(DialTLS(t.Context(), ip, keys, lease))(t)
	must.Get(c.Open(t.Context(), Opening{}))(t)
	if e, err := c.Exec(t.Context(), sandbox.Cmd{Argv: []string{"echo", "held"}}); err != nil || string(e.Stdout.Bytes()) != "held\n" {
		t.Error(e, err)
	}
	must.Report(t, c.Close())
	<-ended
}

// BenchmarkExec compares a command through a daemon with a command that this process
// starts.
func BenchmarkExec(b *testing.B) {
	c := must.Get(start(b.Context(), b.TempDir(), Opening{}, make(chan error, 1)))(b)
	defer c.Close()
	var through, plain []time.Duration
	for b.Loop() {
		began := time.Now()
		if e, err := c.Exec(b.Context(), sandbox.Cmd{Argv: []string{"/bin/true"}}); err != nil || e.Code != 0 {
			b.Fatal(e, err)
		}
		through = append(through, time.Since(began))
		began = time.Now()
		must.Do(b, exec.Command("/bin/true").Run())
		plain = append(plain, time.Since(began))
	}
	slices.Sort(through)
	slices.Sort(plain)
	n := len(plain) / 2
	b.ReportMetric(float64(through[n].Microseconds()), "daemon-µs")
	b.ReportMetric(float64(plain[n].Microseconds()), "plain-µs")
	b.ReportMetric(float64(through[n])/float64(plain[n]), "ratio")
}

// TestGoneBeforeCommand: a daemon that ends after the connection was made, and before the
// command was sent, is a lost daemon like any other.
func TestGoneBeforeCommand(t *testing.T) {
	ended := make(chan error, 1)
	c := must.Get(start(t.Context(), t.TempDir(), Opening{}, ended))(t)
	c.connect = func(context.Context) (net.Conn, error) {
		conn, daemon := net.Pipe()
		return conn, daemon.Close()
	}
	if e, err := c.Exec(t.Context(), sandbox.Cmd{Argv: []string{"true"}}); !errors.Is(err, sandbox.ErrLost) || !errors.Is(err, ErrGone) {
		t.Errorf("the command: %v, %+v", err, e)
	}
	// A command too large for a message does not affect the daemon.
	if e, err := c.Exec(t.Context(), sandbox.Cmd{Argv: []string{"true", strings.Repeat("x", mostPayload)}}); err == nil || errors.Is(err, sandbox.ErrLost) {
		t.Errorf("a command that no message holds: %v, %+v", err, e)
	}
	must.Report(t, c.Close())
	<-ended
}

// TestMemoryTakesSupervisor: the memory killer may kill the supervisor of a command, too.
// The command's Exit reports that memory ran out, and the next command runs.
func TestMemoryTakesSupervisor(t *testing.T) {
	dir := must.Get(stateDir())(t)
	workspace := t.TempDir()
	var kills atomic.Int32
	d := &server{socketDir: dir, state: filepath.Join(dir, "state"), workspace: workspace, oomKills: func() int { return int(kills.Load()) }}
	ended := make(chan error, 1)
	go d.live(dir, ended, func() error { return d.serve(lease) })
	c := must.Get(Dial(t.Context(), dir, lease))(t)
	must.Get(c.Open(t.Context(), Opening{}))(t)
	for _, memory := range []bool{true, false} {
		began := filepath.Join(workspace, "began")
		result := make(chan error, 1)
		var e sandbox.Exit
		go func() {
			var err error
			e, err = c.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo $PPID > began; exec sleep 1000"}})
			result <- err
		}()
		var pid int
		for end := time.Now().Add(lease); pid == 0; time.Sleep(5 * time.Millisecond) {
			data, _ := os.ReadFile(began)
			pid, _ = strconv.Atoi(strings.TrimSpace(string(data)))
			if time.Now().After(end) {
				t.Fatal("the command does not begin")
			}
		}
		if memory {
			kills.Add(1)
		}
		must.Do(t, syscall.Kill(pid, syscall.SIGKILL))
		err := <-result
		if memory && (err != nil || e.Ended != sandbox.OutOfMem) || !memory && !errors.Is(err, sandbox.ErrLost) || errors.Is(err, ErrGone) {
			t.Errorf("memory ran out: %t: %v, %+v", memory, err, e)
		}
		if e, err := c.Exec(t.Context(), sandbox.Cmd{Argv: []string{"rm", "began"}}); err != nil || e.Code != 0 {
			t.Errorf("the next command: %v, %+v", err, e)
		}
	}
	must.Report(t, c.Close())
	<-ended
}
