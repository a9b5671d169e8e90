package flowtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/tool"
)

// FaultKind is a kind of failure.
type FaultKind string

// The faults.
const (
	// ModelFails: the call fails with Fault.Err, or llm.CodeUnavailable.
	ModelFails FaultKind = "model fails"
	// ModelTimesOut: the call fails with llm.CodeTimeout.
	ModelTimesOut FaultKind = "model times out"
	// ModelBreaksOff: the answer begins, and then its stream ends, with llm.CodeTruncated.
	// The runtime asks such a call again, at most three times.
	ModelBreaksOff FaultKind = "model breaks off"
	// ToolFails: the tool is not called, and returns Fault.Err.
	ToolFails FaultKind = "tool fails"
	// ToolTimesOut: the tool is not called, and its outcome is of kind tool.Timeout.
	ToolTimesOut FaultKind = "tool times out"
	// SandboxLost: all operations of the tool in its sandbox fail with sandbox.ErrLost.
	SandboxLost FaultKind = "sandbox lost"
)

// Fault makes calls of a run fail, in the same way on every execution.
type Fault struct {
	Kind FaultKind
	// Name is the name of the agent or the tool whose calls fail; "" is all.
	Name string
	// Call is the number of the failing call, from one, in the order in which the calls
	// begin; 0 is each. Each run counts its own calls, and so does each branch.
	Call int
	// Step, if set, selects the one call at this step of the run. It is for calls that
	// begin at the same time.
	Step run.Path
	// Tries is the number of failing tries of a model's call; 0 is all tries of the
	// runtime.
	Tries int
	// Err is the error of ModelFails and ToolFails; nil has a default.
	Err error
}

// String names the fault.
func (f Fault) String() string {
	return fmt.Sprintf("fault %q of %q (call %d, step %q)", f.Kind, f.Name, f.Call, f.Step)
}

func (f *Fault) of(class string) bool {
	switch f.Kind {
	case ModelFails, ModelTimesOut, ModelBreaksOff:
		return class == "model"
	case ToolFails, ToolTimesOut:
		return class == "tool"
	}
	return class == "sandbox"
}

// valid returns an error if the faults are invalid.
func valid(all []Fault) error {
	for i := range all {
		f := &all[i]
		switch f.Kind {
		case ModelFails, ModelTimesOut, ModelBreaksOff, ToolFails, ToolTimesOut, SandboxLost:
		default:
			return fmt.Errorf("there is no fault %q", f.Kind)
		}
		if f.Call < 0 || f.Tries < 0 || f.Tries > 0 && !f.of("model") || f.Err != nil && f.Kind != ModelFails && f.Kind != ToolFails {
			return fmt.Errorf("%v: calls and tries count from one, only a model's call is tried again, and only %q and %q take an error", *f, ModelFails, ToolFails)
		}
	}
	return nil
}

// faults are the faults of one world. They outlive its processes, so that a call that is
// repeated after a crash counts once.
type faults struct {
	all []Fault

	mu    sync.Mutex
	calls map[site][]run.Path // that a fault matched, in their order
	tries map[site]int        // failed tries of a call
	hits  map[int]bool        // by the indexes of the faults in all
}

// site is the scope of a fault's counters: a run, or one call of it.
type site struct {
	fault int
	run   run.ID
	step  run.Path
}

// hit returns the fault that the current call in ctx meets; nil is none.
func (w *faults) hit(ctx context.Context, class string) *Fault {
	at, ok := flow.RunInfo(ctx)
	if !ok {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.all {
		f := &w.all[i]
		if !f.of(class) || f.Name != "" && f.Name != at.Name || f.Step != "" && f.Step != at.Path {
			continue
		}
		in, call := site{i, at.Run, ""}, site{i, at.Run, at.Path}
		if !slices.Contains(w.calls[in], at.Path) {
			w.calls[in] = append(w.calls[in], at.Path)
		}
		if f.Call > 0 && slices.Index(w.calls[in], at.Path) != f.Call-1 || f.Tries > 0 && w.tries[call] >= f.Tries {
			continue
		}
		w.tries[call]++
		w.hits[i] = true
		return f
	}
	return nil
}

// missed returns the faults that no call met.
func (w *faults) missed() (all []Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, f := range w.all {
		if !w.hits[i] {
			all = append(all, f)
		}
	}
	return all
}

// onTool is engine.Runtime.OnTool.
func (w *faults) onTool(ctx context.Context) error {
	switch f := w.hit(ctx, "tool"); {
	case f == nil:
		return nil
	case f.Kind == ToolTimesOut:
		return &tool.Failure{Kind: tool.Timeout, Message: "the tool did not end in time"}
	default:
		return cmp.Or(f.Err, errors.New("the tool failed"))
	}
}

// faultyModels are models whose calls fail.
type faultyModels struct {
	llm.Models
	faults *faults
}

func (m faultyModels) Client(ctx context.Context, p llm.Provider) (llm.Client, error) {
	c, err := m.Models.Client(ctx, p)
	return faultyClient{c, m.faults}, err
}

type faultyClient struct {
	llm.Client
	faults *faults
}

func (c faultyClient) Complete(ctx context.Context, r *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
	f := c.faults.hit(ctx, "model")
	if f == nil {
		return c.Client.Complete(ctx, r, sink)
	}
	switch f.Kind {
	case ModelTimesOut:
		return nil, &llm.Error{Code: llm.CodeTimeout, Message: "no answer came in time"}
	case ModelBreaksOff:
		came := 0
		_, err := c.Client.Complete(ctx, r, func(d llm.Delta) {
			if came++; came == 1 && sink != nil {
				sink(d)
			}
		})
		return nil, cmp.Or(err, error(&llm.Error{Code: llm.CodeTruncated, Message: "the stream ended in the middle of the answer"}))
	}
	return nil, cmp.Or(f.Err, error(&llm.Error{Code: llm.CodeUnavailable, Message: "the server failed"}))
}

// faultyBackend opens sandboxes that can be lost.
type faultyBackend struct {
	sandbox.Backend
	faults *faults
}

func (b faultyBackend) Open(ctx context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	box, err := b.Backend.Open(ctx, s)
	if err != nil {
		return nil, err
	}
	return faultySandbox{box, b.faults}, nil
}

type faultySandbox struct {
	sandbox.Sandbox
	faults *faults
}

// lost returns the error of a lost sandbox.
func (w *faults) lost(ctx context.Context) error {
	if w.hit(ctx, "sandbox") != nil {
		return fmt.Errorf("flowtest: %w", sandbox.ErrLost)
	}
	return nil
}

func (s faultySandbox) Exec(ctx context.Context, c sandbox.Cmd) (sandbox.Exit, error) {
	if err := s.faults.lost(ctx); err != nil {
		return sandbox.Exit{}, err
	}
	return s.Sandbox.Exec(ctx, c)
}

func (s faultySandbox) Files() sandbox.Files { return faultyFiles{s.Sandbox.Files(), s.faults} }

type faultyFiles struct {
	sandbox.Files
	faults *faults
}

func (s faultyFiles) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := s.faults.lost(ctx); err != nil {
		return nil, err
	}
	return s.Files.Open(ctx, name)
}

func (s faultyFiles) Create(ctx context.Context, name string) (io.WriteCloser, error) {
	if err := s.faults.lost(ctx); err != nil {
		return nil, err
	}
	return s.Files.Create(ctx, name)
}

func (s faultyFiles) Remove(ctx context.Context, name string) error {
	if err := s.faults.lost(ctx); err != nil {
		return err
	}
	return s.Files.Remove(ctx, name)
}

func (s faultyFiles) Rename(ctx context.Context, name, to string) error {
	if err := s.faults.lost(ctx); err != nil {
		return err
	}
	return s.Files.Rename(ctx, name, to)
}

func (s faultyFiles) List(ctx context.Context, name string) ([]sandbox.Entry, error) {
	if err := s.faults.lost(ctx); err != nil {
		return nil, err
	}
	return s.Files.List(ctx, name)
}

func (s faultyFiles) Stat(ctx context.Context, name string) (sandbox.Entry, error) {
	if err := s.faults.lost(ctx); err != nil {
		return sandbox.Entry{}, err
	}
	return s.Files.Stat(ctx, name)
}
