// Package opensandbox runs commands in the sandboxes of an OpenSandbox server, which this
// process reaches over HTTP alone: https://github.com/alibaba/OpenSandbox.
//
// The package is written from the API's description (lifecycle and execd, of June 2026),
// and tested with a server made from it as well. It has not run against a real server.
//
// Each sandbox is a sandbox of the server. This package uses few calls of its API: create,
// get, list, renew, delete and the address of a port; and of the daemon that the server
// puts into each sandbox, upload and the start of one command. That command is this program
// itself, which is uploaded and runs the commands as in package docker, so an image needs
// only a shell. Connections to it are WebSockets through the server's proxies, and inside
// them TLS with keys of their own, so that neither another holder of an address nor a proxy
// on the way can use the daemon. Commands do not run through the server's own daemon,
// because it spools all output to a file that it keeps in the sandbox, delivers lines of
// text instead of bytes, and accepts no input.
//
// The files are not a directory of this host; each command synchronizes them with one.
//
// Restrictions in a sandbox:
//
//   - Isolation is the isolation of a container. The API does not report a stronger runtime.
//   - Commands are confined within it as by package local, where the kernel there allows
//     that. Otherwise Probe fails, because the network could not be closed.
//   - The network is none, or a list of hosts where the kernel there can give commands
//     networks of their own: then they reach the proxy of this host, over the connection
//     to the daemon. The server's networkPolicy is not used. It does not record requests,
//     resolves names itself and so allows names of private addresses, and would need
//     the secrets.
//   - The daemon limits disk and processes. The server limits memory and processors,
//     if Probe finds its limits set within a sandbox.
//   - An image is named by its digest, because the server resolves no names.
//
// A sandbox ends when it is not renewed for the time of [Lifetime], and its daemon sooner.
// A sandbox of a session's older epoch is deleted when the session opens another.
//
// The program must be linked statically (CGO_ENABLED=0), and must call [Reexec] first.
package opensandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/execd"
	"github.com/rathcluster/rath/sandbox"
)

// Lifetime is how long a sandbox lives without a renewal.
const Lifetime = 2 * time.Minute

// DefaultDir is the directory in a sandbox for all files of this package.
const DefaultDir = "/tmp"

// ErrNoReexec is returned when the program never called Reexec.
var ErrNoReexec = errors.New("opensandbox: this program cannot be the daemon of a sandbox: call opensandbox.Reexec() first in main, and first in TestMain of tests")

// Options configure a backend. URL, KeyFile and Image are required.
type Options struct {
	// URL is the address of the lifecycle API, such as https://sandboxes.example.org/v1.
	URL string
	// KeyFile is a file with the API key. It is read for each request.
	KeyFile string
	// Image is the default image of sandboxes, by digest: example.org/image@sha256:DIGEST.
	Image string
	// Proxied makes this process reach sandboxes through the server only.
	Proxied bool
	// Dir is a directory in a sandbox in which a new directory may be created; "" is
	// DefaultDir.
	Dir string
	// Logger receives failures of the cleanup; nil discards them.
	Logger *slog.Logger
}

// driver is the sandbox.Backend of a server.
type driver struct {
	o   Options
	log *slog.Logger
	api *api
	bad error // of the options

	// program opens the program of the daemon.
	program    func() (*os.File, error)
	renewEvery time.Duration

	mu     sync.Mutex
	probed *sandbox.Capabilities
}

// Reexec turns this process into the daemon of a sandbox if it was started as one, and then
// never returns. Otherwise it does what local.Reexec does.
func Reexec() { execd.Reexec(os.Args) }

// New returns a backend. It has no effect until the backend is used.
func New(o Options) sandbox.Backend { return newDriver(o) }

func newDriver(o Options) *driver {
	b := &driver{o: o, log: o.Logger, program: execd.Program, renewEvery: Lifetime / 3}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	b.o.Dir = cmp.Or(o.Dir, DefaultDir)
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		b.bad = fmt.Errorf("the URL %q of the server is no address of HTTP", o.URL)
		return b
	}
	// A redirect would send the key to another server.
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	b.api = &api{http: c, base: u, keyFile: o.KeyFile}
	return b
}

// Name implements sandbox.Backend.
func (b *driver) Name() string { return "opensandbox" }

// Probe implements sandbox.Backend. The first successful call opens a sandbox over an empty
// directory; later calls return the same result.
func (b *driver) Probe(ctx context.Context) (sandbox.Capabilities, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.probed != nil {
		return *b.probed, nil
	}
	c, err := b.probe(ctx)
	if err != nil {
		return sandbox.Capabilities{}, fmt.Errorf("opensandbox: %w", err)
	}
	b.probed = &c
	return c, nil
}

// probeLimits are the limits that Probe sets to test whether a server enforces them.
var probeLimits = sandbox.Limits{CPU: 0.5, Memory: 256 << 20}

func (b *driver) probe(ctx context.Context) (c sandbox.Capabilities, err error) {
	if runtime.GOOS != "linux" {
		return c, fmt.Errorf("%w: it needs Linux, as the daemon of a sandbox is this program", sandbox.ErrUnsupported)
	}
	if !execd.Ready() {
		return c, ErrNoReexec
	}
	if b.bad != nil {
		return c, b.bad
	}
	if err := checkImage(b.o.Image); err != nil {
		return c, err
	}
	x, err := b.launch(ctx, request{image: b.o.Image, limits: probeLimits})
	if err != nil {
		return c, err
	}
	held, err := x.limits(ctx, probeLimits)
	if err := errors.Join(err, x.Discard()); err != nil {
		return c, err
	}
	if !x.inside.Isolation.AtLeast(sandbox.IsolationKernel) {
		return c, fmt.Errorf("%w: the kernel of its sandboxes confines no commands (%s), so that their network could not be closed", sandbox.ErrUnsupported, x.inside.Detail)
	}
	c = sandbox.Capabilities{Isolation: sandbox.IsolationContainer, Networks: x.inside.Networks, Images: true, WholeTree: x.inside.WholeTree, Services: x.inside.Services}
	c.Limits = held
	for _, l := range []string{sandbox.LimitDisk, sandbox.LimitPIDs} {
		if slices.Contains(x.inside.Limits, l) {
			c.Limits = append(c.Limits, l)
		}
	}
	slices.Sort(c.Limits)
	c.Detail = fmt.Sprintf("server %s, %s", b.api.base.Host, x.inside.Detail)
	return c, nil
}

// Check tests, without opening a sandbox, whether the server answers and accepts the key.
// It returns a description, or an error with a remedy.
func Check(ctx context.Context, o Options) (found string, err error) { return newDriver(o).check(ctx) }

func (b *driver) check(ctx context.Context) (found string, err error) {
	if err := cmp.Or(b.bad, checkImage(b.o.Image)); err != nil {
		return "", fmt.Errorf("opensandbox: %w", err)
	}
	// Try once: the operator is waiting.
	err = b.api.call(ctx, "list sandboxes", http.MethodGet, "sandboxes", url.Values{"page": {"1"}, "pageSize": {"1"}}, nil, new(struct{}))
	remedy := ""
	switch status := statusOf(err); {
	case err == nil:
		// The API has no request for the server's version.
		return fmt.Sprintf("server %s answers and accepts the key, with the lifecycle API at %s", b.api.base.Host, cmp.Or(b.api.base.Path, "/")), nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		remedy = "write the API key to the file that opensandbox_key names"
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		remedy = "put a valid key of the server into " + b.o.KeyFile
	case status == http.StatusNotFound, status >= 300 && status < 400:
		remedy = "name the base of the lifecycle API, which most often ends with /v1"
	case status == 0:
		remedy = "check the server at this address, and any proxy or policy in between"
	default:
		remedy = "check the server's log"
	}
	return "", fmt.Errorf("opensandbox: server %s: %w; %s", b.api.base.Redacted(), err, remedy)
}

var digest = regexp.MustCompile(`^[^@\s]+@sha256:[0-9a-f]{64}$`)

func checkImage(name string) error {
	if name == "" {
		return errors.New("no image is named: set RATH_SANDBOX_OPENSANDBOX_IMAGE to one with its digest, as example.org/image@sha256:DIGEST")
	}
	if !digest.MatchString(name) {
		return fmt.Errorf("%w: the image %q; name it as example.org/image@sha256:DIGEST, because the server resolves no names", sandbox.ErrUnsupported, name)
	}
	return nil
}

// Resolve implements sandbox.Backend.
func (b *driver) Resolve(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	can, err := b.Probe(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	info, err := can.Resolve("opensandbox", s)
	if err != nil {
		return info, err
	}
	info.Image = cmp.Or(s.Image, b.o.Image)
	if err := checkImage(info.Image); err != nil {
		return sandbox.Info{}, fmt.Errorf("opensandbox: %w", err)
	}
	return info, nil
}

// Open implements sandbox.Backend.
func (b *driver) Open(ctx context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	info, err := b.Resolve(ctx, s)
	if err != nil {
		return nil, err
	}
	x, err := execd.OpenBox(ctx, "opensandbox", s, info, func(ctx context.Context, o execd.Opening) (execd.Place, error) {
		if err := b.supersede(ctx, s.Owner, s.Epoch); err != nil {
			return nil, err
		}
		return b.launch(ctx, request{image: info.Image, limits: s.Limits, owner: s.Owner, epoch: s.Epoch, open: o})
	})
	if err != nil {
		return nil, fmt.Errorf("opensandbox: open %q: %w", s.Dir, err)
	}
	return x, nil
}

// dir returns the directory in a sandbox for the files of a lease.
func (b *driver) dir(lease string) string { return path.Join(b.o.Dir, "rath-"+lease) }
