// Package scripted implements a sandbox without processes, for tests: commands are shell
// scripts that this process interprets, over the directory of the sandbox, and Go
// functions.
//
//	b := scripted.New(&scripted.Options{Faults: []scripted.Fault{{Kind: scripted.LostAnswer, Call: 2}}})
//
// No program of the host ever runs. A command finds its workspace, a directory for
// temporary files, a few devices, and the small POSIX programs of [Programs], and no other
// files of the host. As no process is started, none can be left.
//
// The sandbox enforces no more than that: a Go function of Options has all rights of this
// process. So the isolation is sandbox.IsolationProcess. Faults inject failures at the same
// call each time.
package scripted

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/sandbox"
)

// Options configure a Backend. The zero value is useful.
type Options struct {
	// Name is the backend's name; "" is "scripted".
	Name string
	// Commands are programs as Go functions, which add to or replace the package's own.
	// Each returns the exit code, soon after ctx ends.
	Commands map[string]func(ctx context.Context, c *Call) int
	// Claims, if set, is the result of Probe, although it is not enforced: for tests of
	// code that depends on it.
	Claims *sandbox.Capabilities
	// Faults inject failures.
	Faults []Fault
}

// FaultKind is a kind of failure.
type FaultKind string

// The faults. Faults of Open count the calls of Open, all others the calls of Exec.
const (
	// OpenRefused: Open returns sandbox.ErrUnsupported.
	OpenRefused FaultKind = "open refused"
	// OpenSlow: Open takes Fault.Delay.
	OpenSlow FaultKind = "open slow"
	// LostAnswer: the command does its work, and the caller gets sandbox.ErrLost.
	LostAnswer FaultKind = "lost answer"
	// Lost: the command ends after Fault.Delay, with sandbox.ErrLost, and so does each
	// later call of this sandbox.
	Lost FaultKind = "sandbox lost"
	// DiskFull: the command is killed after Fault.Delay, as at a limit of disk.
	DiskFull FaultKind = "disk full"
	// OutOfMem: the command is killed after Fault.Delay, as at a limit of memory.
	OutOfMem FaultKind = "out of memory"
)

// Fault is a failure to inject.
type Fault struct {
	Kind FaultKind
	// Call is the number of the call, from one, over all sandboxes of the backend; 0 is
	// every call.
	Call  int
	Delay time.Duration
}

// Backend is a sandbox.Backend that runs commands in this process.
type Backend struct {
	o Options

	mu           sync.Mutex
	specs        []sandbox.Spec // of all opened sandboxes
	open         int
	opens, execs int // calls
}

var _ sandbox.Backend = (*Backend)(nil)

// New returns a backend; nil options mean the defaults.
func New(o *Options) *Backend {
	b := &Backend{}
	if o != nil {
		b.o = *o
	}
	return b
}

// Name implements sandbox.Backend.
func (b *Backend) Name() string {
	if b.o.Name != "" {
		return b.o.Name
	}
	return "scripted"
}

// Opened returns the Specs of all sandboxes opened so far, and the number that are open.
func (b *Backend) Opened() (all []sandbox.Spec, open int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.specs), b.open
}

// Probe implements sandbox.Backend.
func (b *Backend) Probe(context.Context) (sandbox.Capabilities, error) {
	if b.o.Claims != nil {
		return *b.o.Claims, nil
	}
	return sandbox.Capabilities{
		Isolation: sandbox.IsolationProcess, Detail: "interpreted by this process",
		Networks: []string{string(sandbox.NetworkNone)}, WholeTree: true, Mounts: true,
	}, nil
}

// Resolve implements sandbox.Backend.
func (b *Backend) Resolve(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	c, err := b.Probe(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	i, err := c.Resolve("scripted", s)
	if err == nil && s.Image != "" {
		i.Image = "sha256:" + strings.TrimPrefix(s.Image, "sha256:")
	}
	return i, err
}

// Open implements sandbox.Backend.
func (b *Backend) Open(ctx context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	info, err := b.Resolve(ctx, s)
	if err != nil {
		return nil, err
	}
	switch f := b.fault(&b.opens, OpenRefused, OpenSlow); f.Kind {
	case OpenRefused:
		return nil, fmt.Errorf("scripted: open: %w", sandbox.ErrUnsupported)
	case OpenSlow:
		if err := wait(ctx, f.Delay); err != nil {
			return nil, err
		}
	}
	x, err := openBox(b, s, info)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.specs = append(b.specs, s)
	b.open++
	return x, nil
}

// fault counts a call and returns its fault of these kinds; the zero Fault is none.
func (b *Backend) fault(calls *int, kinds ...FaultKind) Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	*calls++
	for _, f := range b.o.Faults {
		if slices.Contains(kinds, f.Kind) && (f.Call == 0 || f.Call == *calls) {
			return f
		}
	}
	return Fault{}
}

// wait waits for a duration or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errLost is the error of a lost sandbox.
var errLost = fmt.Errorf("scripted: %w", sandbox.ErrLost)

var errEnded = errors.New("the command has ended")
