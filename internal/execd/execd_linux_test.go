package execd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/directory"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	Reexec(os.Args)
	sandboxtest.Probe()
	os.Exit(m.Run())
}

// host opens sandboxes whose daemon is a goroutine of this process.
type host struct{ state string }

func (host) Name() string { return "daemon" }

func (h host) Probe(ctx context.Context) (sandbox.Capabilities, error) {
	c, err := local.New(&local.Options{State: h.state}).Probe(ctx)
	c.Limits, c.Networks = []string{sandbox.LimitDisk, sandbox.LimitPIDs}, []string{string(sandbox.NetworkNone)}
	return c, err
}

func (h host) Resolve(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	c, err := h.Probe(ctx)
	if names := c.Unenforced(s.Limits); err == nil && (len(names) > 0 || !c.Isolation.AtLeast(s.MinIsolation)) {
		err = fmt.Errorf("%w: %s", sandbox.ErrUnsupported, strings.Join(names, ", "))
	}
	if n := cmp.Or(s.Network, sandbox.NetworkNone); err == nil && (n != sandbox.NetworkNone || s.Image != "") {
		err = fmt.Errorf("%w: image %q, network %q", sandbox.ErrUnsupported, s.Image, n)
	}
	return sandbox.Info{Isolation: c.Isolation, Network: sandbox.NetworkNone, Limits: s.Limits, WholeTree: true}, err
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
	b := &hostBox{files: files, info: c, ended: make(chan error, 1)}
	if b.Client, err = start(ctx, files.Name(), s.Limits, time.Minute, b.ended); err != nil {
		return nil, errors.Join(err, files.Close())
	}
	return b, nil
}

// start serves a workspace and takes hold of it.
func start(ctx context.Context, workspace string, l sandbox.Limits, lease time.Duration, ended chan<- error) (*Client, error) {
	dir, err := os.MkdirTemp("", "rath-daemon-")
	if err != nil {
		return nil, err
	}
	d := &server{socketDir: dir, state: filepath.Join(dir, "state"), workspace: workspace, oomKills: func() int { return 0 }}
	go func() {
		err := d.serve(lease)
		if d.box != nil {
			err = errors.Join(err, d.box.Close())
		}
		os.RemoveAll(dir)
		ended <- err
	}()
	c, err := Dial(ctx, dir, lease)
	if err != nil {
		return nil, err
	}
	if _, err := c.Open(ctx, Opening{Limits: l}); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// hostBox is what a backend makes of a Client.
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
	sandboxtest.TestBackend(t, func(t *testing.T) sandbox.Backend { return host{t.TempDir()} })
}

// BenchmarkExec compares a command through a daemon with one that this process starts.
func BenchmarkExec(b *testing.B) {
	c, err := start(b.Context(), b.TempDir(), sandbox.Limits{}, time.Minute, make(chan error, 1))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	var through, plain []time.Duration
	for b.Loop() {
		began := time.Now()
		if e, err := c.Exec(b.Context(), sandbox.Cmd{Argv: []string{"/bin/true"}}); err != nil || e.Code != 0 {
			b.Fatal(e, err)
		}
		through = append(through, time.Since(began))
		began = time.Now()
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
		plain = append(plain, time.Since(began))
	}
	slices.Sort(through)
	slices.Sort(plain)
	n := len(plain) / 2
	b.ReportMetric(float64(through[n].Microseconds()), "daemon-µs")
	b.ReportMetric(float64(plain[n].Microseconds()), "plain-µs")
	b.ReportMetric(float64(through[n])/float64(plain[n]), "ratio")
}
