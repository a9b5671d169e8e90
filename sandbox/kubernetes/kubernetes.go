// Package kubernetes runs commands in pods of a Kubernetes cluster.
//
// Each sandbox is a pod of its own, never used twice, in a namespace that may enforce Pod
// Security "restricted": no root, no capability, no token, a read-only root file system,
// the workspace in an empty volume. Commands run through a daemon in the pod, which accepts
// only this process's connections; no process in the pod opens one. The daemon is this
// program itself: an init container with the image of the node copies it into the pod, so
// that the image of commands needs no files for it. The program must be linked statically
// (CGO_ENABLED=0), and must call [Reexec] first:
//
//	func main() {
//		kubernetes.Reexec()
//		...
//	}
//
// Isolation in a pod: "restricted" leaves one user for the daemon and the commands, so
// Landlock and seccomp, as in package local, keep commands from the daemon, from its keys
// and from the pod's network. Where the kernel of pods has no Landlock, such as gVisor's,
// Probe fails. A list of hosts and services are offered where the kernel lets commands have
// a network namespace of their own; many runtimes' default seccomp profiles do not.
//
// Each pod has its own keys. They reach the daemon by a secret that the pod owns and that
// is deleted with it. Anyone with the right to read secrets of the namespace can connect to
// the daemon.
//
// If the API server has the claims of agent-sandbox, a SandboxClaim requests each pod, and
// owns its secret.
package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/execd"
	"github.com/rathcluster/rath/sandbox"
)

// ErrNoReexec is returned when the program never called Reexec.
var ErrNoReexec = errors.New("kubernetes: this program cannot be the daemon of a pod: call kubernetes.Reexec() first in main, and first in TestMain of tests")

// DefaultStart is how long a pod may take until its daemon answers.
const DefaultStart = 2 * time.Minute

// DefaultUser is the user of pods.
const DefaultUser = 65532

// The ways to create pods: directly, or by a SandboxClaim of agent-sandbox
// (extensions.agents.x-k8s.io/v1beta1), whose controller creates them.
const (
	ModePod   = "pod"
	ModeClaim = "claim"
)

// Options configure a backend. Image and NodeImage are required.
type Options struct {
	// Kubeconfig is a file with the configuration of the API server's client; "" is the
	// service account of the pod that this process runs in.
	Kubeconfig string
	// Namespace is the namespace of the pods; "" is the namespace of Kubeconfig or of the
	// service account.
	Namespace string
	// Image is the default image of sandboxes, by digest or by name. A name is resolved by
	// the first pod. Sandboxes name other images by digest (NAME@sha256:DIGEST).
	Image string
	// NodeImage is an image with this program at the path Program, usually the image of
	// this process; "" for Program is this process's own path.
	NodeImage, Program string
	// RuntimeClass is the runtime class of pods, such as kata; "" is the cluster's default.
	RuntimeClass string
	// PullSecrets are the names of the secrets for pulling images.
	PullSecrets []string
	// User is the number of the user of pods; 0 is DefaultUser.
	User int64
	// Holder is the name of this process in the labels of pods, such as the name of its
	// pod.
	Holder string
	// Mode is the way to create pods: ModePod, ModeClaim, or "" for claims where the API
	// server has them.
	Mode string
	// Start is how long a pod may take until its daemon answers; 0 is DefaultStart.
	Start time.Duration
	// Lease is how long a pod lives without a message from this process; 0 is 30 s.
	Lease time.Duration
	// Logger receives a record of each removal by Run; nil discards them.
	Logger *slog.Logger
}

// driver is the sandbox.Backend of a cluster.
type driver struct {
	o   Options
	log *slog.Logger

	reaching sync.Mutex
	reached  *cluster

	mu     sync.Mutex
	probed *sandbox.Capabilities
	image  string // the digest of Options.Image; set with probed
}

var _ sandbox.Sweeper = (*driver)(nil)

// Reexec turns this process into the daemon of a pod if it was started as one, and then
// never returns. Otherwise it does what local.Reexec does.
func Reexec() { execd.Reexec(os.Args) }

// New returns a backend. It has no effect until the backend is used.
func New(o Options) sandbox.Backend { return newDriver(o) }

func newDriver(o Options) *driver {
	b := &driver{o: o, log: o.Logger}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	b.o.User = cmp.Or(o.User, DefaultUser)
	b.o.Start = cmp.Or(o.Start, DefaultStart)
	b.o.Lease = cmp.Or(o.Lease, execd.DefaultLease)
	return b
}

// reach returns the cluster. The result of the first successful call is final.
func (b *driver) reach(ctx context.Context) (*cluster, error) {
	b.reaching.Lock()
	defer b.reaching.Unlock()
	if b.reached != nil {
		return b.reached, nil
	}
	c, err := connect(ctx, b.o.Kubeconfig, b.o.Namespace, b.o.Mode)
	if err != nil {
		return nil, err
	}
	b.reached = c
	return c, nil
}

// Name implements sandbox.Backend.
func (b *driver) Name() string { return "kubernetes" }

// Probe implements sandbox.Backend. The first successful call runs a pod over an empty
// directory; later calls return the same result.
func (b *driver) Probe(ctx context.Context) (sandbox.Capabilities, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.probed != nil {
		return *b.probed, nil
	}
	c, image, err := b.probe(ctx)
	if err != nil {
		return sandbox.Capabilities{}, fmt.Errorf("kubernetes: %w", err)
	}
	b.probed, b.image = &c, image
	return c, nil
}

func (b *driver) checkImages() error {
	if b.o.Image == "" || b.o.NodeImage == "" {
		return errors.New("name the image of sandboxes (RATH_SANDBOX_KUBERNETES_IMAGE) and the image of the node (RATH_SANDBOX_KUBERNETES_NODE_IMAGE)")
	}
	return nil
}

func (b *driver) probe(ctx context.Context) (c sandbox.Capabilities, image string, err error) {
	if runtime.GOOS != "linux" {
		return c, "", fmt.Errorf("%w: it needs Linux, as pods run this program", sandbox.ErrUnsupported)
	}
	if !execd.Ready() {
		return c, "", ErrNoReexec
	}
	if err := b.checkImages(); err != nil {
		return c, "", err
	}
	one, err := b.launch(ctx, request{image: b.o.Image}, execd.Opening{})
	if err != nil {
		return c, "", err
	}
	inside := one.inside
	if image, err = one.digest(b.o.Image); err != nil {
		return c, "", errors.Join(err, one.Discard())
	}
	if err := one.Discard(); err != nil {
		return c, "", err
	}
	if !inside.Isolation.AtLeast(sandbox.IsolationKernel) {
		return c, "", fmt.Errorf("%w: commands could reach the daemon of their pod: %s; use machines or a runtime class whose kernel has Landlock (5.13 or later)", sandbox.ErrUnsupported, inside.Detail)
	}
	c = sandbox.Capabilities{
		Isolation: sandbox.IsolationContainer, Networks: inside.Networks, Images: true, WholeTree: inside.WholeTree, Services: inside.Services,
		Limits: []string{sandbox.LimitCPU, sandbox.LimitMemory},
	}
	for _, limit := range []string{sandbox.LimitDisk, sandbox.LimitPIDs} {
		if slices.Contains(inside.Limits, limit) {
			c.Limits = append(c.Limits, limit)
		}
	}
	slices.Sort(c.Limits)
	c.Detail = fmt.Sprintf("pods of namespace %s, made by %s, runtime class %s, %s", one.in.namespace, one.in.name(), cmp.Or(b.o.RuntimeClass, "by default"), inside.Detail)
	return c, image, nil
}

// byDigest matches references that always refer to the same image.
var byDigest = regexp.MustCompile(`^[^@\s]+@sha256:[0-9a-f]{64}$`)

// Resolve implements sandbox.Backend.
func (b *driver) Resolve(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	can, err := b.Probe(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	info, err := can.Resolve("kubernetes", s)
	if err != nil {
		return info, err
	}
	info.Image = b.image
	if s.Image != "" && s.Image != b.o.Image {
		if info.Image = s.Image; !byDigest.MatchString(s.Image) {
			return sandbox.Info{}, fmt.Errorf("kubernetes: %w: the image %q can be moved; name it by digest, as NAME@sha256:DIGEST", sandbox.ErrUnsupported, s.Image)
		}
	}
	return info, nil
}

// Open implements sandbox.Backend.
func (b *driver) Open(ctx context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	info, err := b.Resolve(ctx, s)
	if err != nil {
		return nil, err
	}
	r := request{image: info.Image, limits: s.Limits, owner: s.Owner, epoch: s.Epoch}
	x, err := execd.OpenBox(ctx, "kubernetes", s, info, func(ctx context.Context, o execd.Opening) (execd.Place, error) {
		p, err := b.launch(ctx, r, o)
		if err != nil {
			return nil, err
		}
		if s.Owner != "" {
			if err := p.in.supersede(ctx, ownerLabel(s.Owner), s.Epoch); err != nil {
				b.log.Warn("older pods of a session are left for now", "error", err)
			}
		}
		return p, nil
	})
	if err != nil {
		return nil, fmt.Errorf("kubernetes: open %q: %w", s.Dir, err)
	}
	return x, nil
}
