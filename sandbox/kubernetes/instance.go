package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/execd"
	"github.com/rathcluster/rath/sandbox"
)

const (
	// The interval between two checks of a starting pod.
	firstLook = 20 * time.Millisecond
	lastLook  = 500 * time.Millisecond
	// removePatience is how long the API server may take to delete a pod.
	removePatience = 30 * time.Second
	// causePatience is how long Cause waits for the cluster to report the end of a pod.
	causePatience = 3 * time.Second
)

// instance is a running pod, with its daemon.
type instance struct {
	in     *cluster
	name   string
	image  string // as its machine names it
	client *execd.Client
	inside sandbox.Capabilities // the capabilities of its daemon
}

// launch starts a pod, becomes the holder of its daemon and opens the daemon.
func (b *driver) launch(ctx context.Context, r request, o execd.Opening) (_ *instance, err error) {
	in, err := b.reach(ctx)
	if err != nil {
		return nil, err
	}
	program := b.o.Program
	if program == "" {
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	keys, err := execd.NewKeys()
	if err != nil {
		return nil, err
	}
	if r.overhead, err = execd.Overhead(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, b.o.Start)
	defer cancel()
	p := &instance{in: in, name: r.podName()}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("pod %s of namespace %s: %w", p.name, in.namespace, err), p.Discard())
		}
	}()
	// A server whose client leaves during a request creates the pod all the same, maybe
	// after a request to delete it.
	making, made := context.WithTimeout(context.WithoutCancel(ctx), requestPatience)
	defer made()
	owner, err := in.begin(making, b.pod(p.name, p.name, program, r))
	if err != nil {
		return nil, err
	}
	if _, err := create(making, in.secrets, secret(p.name, owner, keys.Daemon)); err != nil {
		return nil, fmt.Errorf("its secret: %w", refused(err))
	}
	ip, err := p.await(ctx)
	if err != nil {
		return nil, err
	}
	if p.client, err = p.dial(ctx, ip, keys, b.o.Lease); err != nil {
		return nil, err
	}
	o.Limits = r.limits
	if p.inside, err = p.client.Open(ctx, o); err != nil {
		return nil, err
	}
	return p, nil
}

// await waits until the pod runs, and returns its address.
func (p *instance) await(ctx context.Context) (ip string, err error) {
	why := "the API server gives no reason"
	// The error of a request when the time is over is not about the pod. The client may
	// fail for the deadline before ctx does.
	over := func() bool {
		end, bounded := ctx.Deadline()
		return ctx.Err() != nil || bounded && !time.Now().Before(end)
	}
	for wait := firstLook; ; wait = min(wait*3/2, lastLook) {
		s, err := p.in.pod(ctx, p.name)
		switch {
		case errors.Is(err, errNotFound):
			more, final := p.in.absent(ctx, p.name)
			if final {
				return "", errors.New(more)
			}
			if !over() {
				why = more
			}
		case err != nil:
			if !over() {
				why = err.Error() // a server may be unavailable for a moment
			}
		case s.running():
			p.image = s.Status.ContainerStatuses[0].ImageID
			return s.Status.PodIP, nil
		default:
			var final bool
			if why, final = s.trouble(); final {
				return "", errors.New(why)
			}
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("it does not run in time: %s: %w", why, context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

// dial becomes the holder of the daemon. It gives up when the pod has ended.
func (p *instance) dial(ctx context.Context, ip string, keys *execd.Keys, lease time.Duration) (*execd.Client, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		for tick := time.Tick(lastLook); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick:
			}
			s, err := p.in.pod(ctx, p.name)
			if errors.Is(err, errNotFound) {
				stop(errors.New("it was deleted"))
			} else if err == nil {
				if why, final := s.trouble(); final {
					stop(errors.New(why))
				}
			}
		}
	}()
	return execd.DialTLS(ctx, ip, keys, lease)
}

// digest returns the name of the image by digest, as the pod's machine resolved it.
func (p *instance) digest(asked string) (string, error) {
	if byDigest.MatchString(asked) {
		return asked, nil
	}
	_, id, _ := strings.Cut(p.image, "://") // some runtimes prefix their name
	if id == "" {
		id = p.image
	}
	if !byDigest.MatchString(id) {
		return "", fmt.Errorf("%w: the cluster reports no digest of the image %s (%q); name it by digest, as NAME@sha256:DIGEST", sandbox.ErrUnsupported, asked, p.image)
	}
	return id, nil
}

// Client implements execd.Place.
func (p *instance) Client() *execd.Client { return p.client }

// Dir implements execd.Place.
func (p *instance) Dir() string { return execd.Workspace }

// Cause implements execd.Place. It returns the cluster's report on the pod.
func (p *instance) Cause() (why string, outOfMemory bool) {
	ctx, cancel := context.WithTimeout(context.Background(), causePatience)
	defer cancel()
	why = fmt.Sprintf("pod %s of namespace %s", p.name, p.in.namespace)
	for {
		s, err := p.in.pod(ctx, p.name)
		if errors.Is(err, errNotFound) {
			return why + ": it was deleted", false
		}
		if err == nil {
			if more, final := s.trouble(); final {
				return why + ": " + more, s.outOfMemory()
			}
		}
		select {
		case <-ctx.Done():
			return why, false
		case <-time.After(firstLook * 5):
		}
	}
}

// Discard implements execd.Place. The pod's secret is deleted with the pod.
func (p *instance) Discard() error {
	if p.client != nil {
		_ = p.client.Close() // a client that has ended already is no error
	}
	ctx, cancel := context.WithTimeout(context.Background(), removePatience)
	defer cancel()
	if err := p.in.remove(ctx, p.name); err != nil {
		return fmt.Errorf("delete the pod %s: %w", p.name, err)
	}
	return nil
}
