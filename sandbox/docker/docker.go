// Package docker runs commands in containers of a Docker engine of this machine.
//
// Each sandbox is a container of its own: without network, on a read-only root file system,
// with the workspace mounted at /workspace, its commands under a user of their own without
// a capability. The engine only creates and removes it. Commands run through a daemon in
// the container, which is this program itself, mounted there and started as the first
// process; an image needs no files for it. Within the container commands are confined as by
// package local, where the kernel allows that. Commands keep running while the engine is
// down. A restarted engine ends them, unless it restores live containers. Their sandboxes
// are then lost; their files remain as the commands left them.
//
// The program must be linked statically (CGO_ENABLED=0), and must call [Reexec] first,
// which includes local.Reexec:
//
//	func main() {
//		docker.Reexec()
//		...
//	}
//
// The engine must see the files of this process under the same names, so a node that is
// itself in a container cannot use the engine of its host.
package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/execd"
	"github.com/rathcluster/rath/sandbox"
)

// DefaultImage is the default image of sandboxes.
const DefaultImage = "rath-sandbox:latest"

// ErrNoReexec is returned when the program never called Reexec.
var ErrNoReexec = errors.New("docker: this program cannot be the daemon of a container: call docker.Reexec() first in main, and first in TestMain of tests")

// Options configure a backend. The zero value is useful.
type Options struct {
	// State is the directory for the backend's own files. It is created if missing, and
	// must be on this machine. "" means rath-containers-<uid> in the system's temporary
	// directory.
	State string
	// Host is the engine's address, such as unix:///var/run/docker.sock; "" is the value of
	// DOCKER_HOST, or that address.
	Host string
	// Image is the image of a sandbox, by name or by digest; "" is DefaultImage. The engine
	// must have it, or get it from ImageTar: images are never pulled.
	Image string
	// ImageTar is a tar file of Image's file system, as docker import accepts it, for an
	// engine without the image.
	ImageTar string
	// Runtime is the engine's runtime for containers, such as runsc; "" is its default.
	Runtime string
	// Warm is the number of pre-created containers to keep per (image, limits) in use,
	// while Run runs; 0 disables the pool.
	Warm int
	// Logger receives a record of each removal by Run; nil discards them.
	Logger *slog.Logger
	// Lease is how long a container lives without a message from this process; 0 is 30 s.
	Lease time.Duration
}

// driver is the sandbox.Backend of an engine.
type driver struct {
	o   Options
	log *slog.Logger

	// reach creates the directory and the engine's client, which sends no request yet.
	reach  func() error
	engine engine // once reach returned nil

	patience time.Duration            // the constant
	program  func() (*os.File, error) // opens the program of the daemon
	pool     pool

	mu     sync.Mutex
	probed *sandbox.Capabilities
}

var _ sandbox.Sweeper = (*driver)(nil)

// Reexec turns this process into the daemon of a container if it was started as one, and
// then never returns. Otherwise it does what local.Reexec does.
func Reexec() { execd.Reexec(os.Args) }

// New returns a backend; nil options mean the defaults. It has no effect until the backend
// is used.
func New(o *Options) sandbox.Backend { return newDriver(o) }

func newDriver(o *Options) *driver {
	b := &driver{patience: patience, program: execd.Program, pool: pool{want: make(chan struct{}, 1)}}
	if o != nil {
		b.o = *o
	}
	if b.o.State == "" {
		b.o.State = filepath.Join(os.TempDir(), fmt.Sprintf("rath-containers-%d", os.Getuid()))
	}
	if b.log = b.o.Logger; b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if b.o.Image == "" {
		b.o.Image = DefaultImage
	}
	if b.o.Lease <= 0 {
		b.o.Lease = execd.DefaultLease
	}
	b.reach = sync.OnceValue(func() (err error) {
		if b.o.State, err = filepath.Abs(b.o.State); err == nil {
			err = os.MkdirAll(b.o.State, 0o700)
		}
		if err != nil {
			return fmt.Errorf("the directory of containers: %w", err)
		}
		if b.engine, err = connect(b.o.Host); err != nil {
			return fmt.Errorf("the engine's address: %w; write it as unix:///var/run/docker.sock (DOCKER_HOST)", err)
		}
		return nil
	})
	return b
}

// Name implements sandbox.Backend.
func (b *driver) Name() string { return "docker" }

// Probe implements sandbox.Backend. The first successful call opens a container over an
// empty directory; later calls return the same result.
func (b *driver) Probe(ctx context.Context) (sandbox.Capabilities, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.probed != nil {
		return *b.probed, nil
	}
	c, err := b.probe(ctx)
	if err != nil {
		return sandbox.Capabilities{}, fmt.Errorf("docker: %w", err)
	}
	b.probed = &c
	return c, nil
}

func (b *driver) probe(ctx context.Context) (c sandbox.Capabilities, err error) {
	if runtime.GOOS != "linux" {
		return c, fmt.Errorf("%w: it needs Linux", sandbox.ErrUnsupported)
	}
	if !execd.Ready() {
		return c, ErrNoReexec
	}
	if err := b.reach(); err != nil {
		return c, err
	}
	asking, cancel := b.asking(ctx)
	about, err := b.engine.info(asking)
	cancel()
	if err == nil && about.OS == "" {
		err = errNoEngine
	}
	if err != nil {
		return c, b.explain("ask what holds", err)
	}
	if about.OS != "linux" || about.Remapped {
		return c, fmt.Errorf("%w: the engine runs %s containers, users remapped: %t; it must run Linux containers without user namespaces",
			sandbox.ErrUnsupported, about.OS, about.Remapped)
	}
	if b.o.Runtime != "" && !slices.Contains(about.Runtimes, b.o.Runtime) {
		return c, fmt.Errorf("%w: the engine has no runtime %q, it has %s; name one of those, or add it to the engine's configuration", sandbox.ErrUnsupported, b.o.Runtime, strings.Join(about.Runtimes, ", "))
	}
	image, err := b.imageID(ctx, b.o.Image)
	if err != nil {
		return c, err
	}
	if err := b.install(); err != nil {
		return c, err
	}
	one, err := b.prepare(ctx, kind{image: image})
	if err != nil {
		return c, err
	}
	inside := one.inside
	if err := b.discard(one); err != nil {
		return c, err
	}
	c = sandbox.Capabilities{
		Isolation: sandbox.IsolationContainer, Networks: []string{string(sandbox.NetworkNone), sandbox.NetworkList, sandbox.NetworkReadOnly}, Images: true, WholeTree: true, Services: true,
	}
	kind := about.DefaultRuntime
	if b.o.Runtime != "" {
		kind = b.o.Runtime
	}
	if strings.Contains(kind, "runsc") {
		c.Isolation = sandbox.IsolationGVisor
	}
	if c.Isolation == sandbox.IsolationGVisor {
		// There a limit of memory or tasks ends the whole sandbox, a limit of processors
		// has no effect, and the daemon cannot create control groups: see .ci/gvisor. So no
		// limit is offered.
		c.Detail = fmt.Sprintf("engine %s, %s, no limits, %s", about.Version, kind, inside.Detail)
		return c, nil
	}
	for limit, holds := range map[string]bool{
		sandbox.LimitMemory: about.Memory, sandbox.LimitCPU: about.CPU, sandbox.LimitPIDs: about.PIDs,
		sandbox.LimitDisk: slices.Contains(inside.Limits, sandbox.LimitDisk),
	} {
		if holds {
			c.Limits = append(c.Limits, limit)
		}
	}
	slices.Sort(c.Limits)
	c.Detail = fmt.Sprintf("engine %s, %s, %s", about.Version, kind, inside.Detail)
	return c, nil
}

// install copies this program to the file that containers mount.
func (b *driver) install() error {
	self, err := b.program()
	if err != nil {
		return err
	}
	defer self.Close()
	// A copy, because a mounted file must not change while containers run.
	name := filepath.Join(b.o.State, execd.Name)
	out, err := os.CreateTemp(b.o.State, execd.Name+".")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	_, err = io.Copy(out, io.NewSectionReader(self, 0, 1<<62))
	if err := errors.Join(err, out.Chmod(0o755), out.Close()); err != nil {
		return fmt.Errorf("copy this program: %w", err)
	}
	return os.Rename(out.Name(), name)
}

// imageID returns the id of an image. It imports the image if allowed.
func (b *driver) imageID(ctx context.Context, ref string) (string, error) {
	asking, cancel := b.asking(ctx)
	defer cancel()
	id, err := b.engine.image(asking, ref)
	if errors.Is(err, errNotFound) && b.o.ImageTar != "" && ref == b.o.Image {
		f, err := os.Open(b.o.ImageTar)
		if err != nil {
			return "", fmt.Errorf("import the image %s: %w; name an existing file", ref, err)
		}
		defer f.Close()
		if err := b.engine.importImage(ctx, f, ref); err != nil {
			return "", b.explain(fmt.Sprintf("import the image %s of %s", ref, b.o.ImageTar), err)
		}
		asking, cancel := b.asking(ctx)
		defer cancel()
		return b.engine.image(asking, ref)
	}
	switch {
	case errors.Is(err, errNotFound):
		return "", fmt.Errorf("%w: the engine at %s has no image %s; pull, build or import it there", sandbox.ErrUnsupported, b.engine.address(), ref)
	case err == nil && id == "":
		err = errNoEngine
	}
	if err != nil {
		return "", b.explain("look for the image "+ref, err)
	}
	return id, nil
}

// Resolve implements sandbox.Backend.
func (b *driver) Resolve(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	can, err := b.Probe(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	info, err := can.Resolve("docker", s)
	if err != nil {
		return info, err
	}
	if info.Image, err = b.imageID(ctx, cmp.Or(s.Image, b.o.Image)); err != nil {
		return sandbox.Info{}, fmt.Errorf("docker: %w", err)
	}
	return info, nil
}

// Open implements sandbox.Backend.
func (b *driver) Open(ctx context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	info, err := b.Resolve(ctx, s)
	if err != nil {
		return nil, err
	}
	if fi, err := os.Stat(s.Dir); err != nil {
		return nil, fmt.Errorf("docker: open: %w; make the directory first", err)
	} else if !fi.IsDir() {
		return nil, fmt.Errorf("docker: open %q: %w", s.Dir, &fs.PathError{Op: "open", Path: s.Dir, Err: errors.New("not a directory")})
	}
	sb, err := b.open(ctx, info, s)
	if err != nil {
		return nil, fmt.Errorf("docker: open %q: %w", s.Dir, err)
	}
	return sb, nil
}
