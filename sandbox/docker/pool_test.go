//go:build engine

package docker

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
)

// warm returns a backend with waiting containers.
func warm(t *testing.T) *driver {
	t.Helper()
	b := backend(t)
	b.o.Warm = 1
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		left, err := b.engine.list(context.Background(), labelLease)
		must.Report(t, err)
		for _, c := range left {
			if strings.HasPrefix(c.Labels[labelFolder], b.o.State) {
				t.Errorf("%s is left", c.Name)
			}
		}
	})
	return b
}

// waits reports whether a container waits.
func (b *driver) waits() bool {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	return slices.ContainsFunc(b.pool.kinds, func(w *waiting) bool { return len(w.list) > 0 })
}

// TestWarmConformance runs the suite with waiting containers, as long as one is ready.
func TestWarmConformance(t *testing.T) {
	b := warm(t)
	sandboxtest.TestBackend(t, func(*testing.T) sandbox.Backend { return b })
}

// TestWarm opens a sandbox in a waiting container: the workspace's files are there under
// its name, and opening it and running a command takes at most a tenth of the usual time.
func TestWarm(t *testing.T) {
	b := warm(t)
	fill := func() string {
		dir := t.TempDir()
		for _, name := range []string{"a", "d/b", "d/e/c", ".hidden"} {
			must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
			must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644))
		}
		return dir
	}
	one := func() time.Duration {
		dir := fill()
		began := time.Now()
		x := open(t, b, sandbox.Spec{Dir: dir, Owner: "session", Epoch: uint64(time.Now().UnixNano())})
		e := sh(t, x, "cat a d/b d/e/c .hidden; echo made > made")
		took := time.Since(began)
		if got := string(e.Stdout.Bytes()); got != "ad/bd/e/c.hidden" {
			t.Errorf("a command finds %q, %s", got, e.Stderr.Bytes())
		}
		if data, err := os.ReadFile(filepath.Join(dir, "made")); err != nil || string(data) != "made\n" {
			t.Errorf("the host finds %q, %v", data, err)
		}
		return took
	}
	must.Get(b.Probe(t.Context()))(t)
	// The minimum counts: load on the machine only adds time, and relatively more to short
	// operations. A busy machine needs more pairs.
	const pairs, most, times = 7, 40, 10
	cold, warm := time.Hour, time.Hour
	for i := 0; i < pairs || i < most && cold < times*warm; i++ {
		b.pool.mu.Lock()
		kinds := b.pool.kinds
		b.pool.kinds = nil
		b.pool.mu.Unlock()
		for _, w := range kinds {
			must.Report(t, b.giveUp(w.list))
		}
		cold = min(cold, one())
		until(t, "a container waits", b.waits)
		warm = min(warm, one())
	}
	ratio := float64(cold) / float64(warm)
	t.Logf("cold %v, warm %v: %.1f times", cold, warm, ratio)
	if ratio < times {
		t.Errorf("a container that waits saves %.1f times the time, less than %d", ratio, times)
	}
}
