package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// hooked is the record of a hook's decision.
type hooked struct {
	Args    string `json:"args,omitempty"` // replaces the model's
	Refused string `json:"refused,omitempty"`
}

// errHook is the error of an agent that a hook ended.
var errHook = errors.New("flow: a hook refused it")

// hook calls a hook in a step of its own, and returns the reason for its rejection, or
// "".
func (a *agent) hook(ctx context.Context, name string, s session.Session, call func(context.Context, session.Session) error) (refused string, err error) {
	if call == nil {
		return "", nil
	}
	var out hooked
	err = a.p.Do(ctx, name+" of "+a.Name, tool.ReadOnly, &tool.Retry{Times: 1}, &out, func(ctx context.Context) error {
		err := call(ctx, s)
		if errors.Is(err, run.ErrNestedStep) {
			return err
		}
		if err != nil {
			out.Refused = excerpt.Clip(err.Error(), 4<<10)
		}
		return nil
	})
	return out.Refused, err
}

// mayGoOn calls a hook whose rejection ends the agent.
func (a *agent) mayGoOn(ctx context.Context, name string, s session.Session, call func(context.Context, session.Session) error) error {
	refused, err := a.hook(ctx, name, s, call)
	if err == nil && refused != "" {
		err = fmt.Errorf("%w: %s of %s: %s", errHook, name, a.Name, refused)
	}
	return err
}

// hooking calls the hooks of a round's agent.
type hooking struct{ *round }

// beforeAll calls the agent's hook for each call before any of them runs.
func (r hooking) beforeAll() error {
	for _, c := range r.calls {
		if err := r.look(c, "before", c.Args); err != nil {
			return err
		}
	}
	return nil
}

// edited calls the hook for calls whose arguments an approver changed.
func (r hooking) edited() error {
	for _, c := range r.calls {
		if !c.answered {
			continue
		}
		if err := r.look(c, "approved", c.edited); err != nil {
			return err
		}
	}
	return nil
}

// look calls the hook for a call, in a step of its own. A call that was recorded without
// a hook stays unchanged.
func (r hooking) look(c *toolCall, child, args string) error {
	if r.before == nil || c.refused != nil {
		return nil
	}
	st := r.callStep(c, c.path.Child(child), journal.StepDo)
	st.asked.Name, st.asked.Input = "before "+c.Name, blob.Sum([]byte(args)).Short()
	if !r.recorded(st.asked.Path) && r.recorded(c.path) {
		return nil
	}
	if err := st.decide(); err != nil {
		return err
	}
	var out hooked
	if err := st.make(func() error { return st.decode(&out) }, func() (journal.StepCompleted, error) { return r.hookCall(c, st, &out) }); err != nil {
		return err
	}
	r.applyHook(c, out)
	return nil
}

// hookCall calls the hook and returns the record of its decision.
func (r hooking) hookCall(c *toolCall, st *step, out *hooked) (d journal.StepCompleted, err error) {
	err = st.authored(protected(st.context(r.ctx), func(ctx context.Context) error {
		args, err := r.before(ctx, c.spec, c.args)
		out.Args = string(args)
		return err
	}))
	if errors.Is(err, run.ErrNestedStep) {
		return d, err
	}
	if stop, ok := st.outcome(err); !ok {
		return d, stop
	}
	if err != nil {
		*out = hooked{Refused: excerpt.Clip(err.Error(), 1<<10)}
	}
	summary := "lets " + c.Name + " run"
	switch {
	case out.Refused != "":
		summary = "refuses " + c.Name + ": " + out.Refused
	case out.Args != "":
		summary = "changes the arguments of " + c.Name
	}
	d.Summary = excerpt.Clip(summary, 200)
	d.Value, err = canonical.Marshal(*out)
	return d, err
}

// applyHook applies a hook's decision to a call.
func (r hooking) applyHook(c *toolCall, h hooked) {
	if h.Refused != "" {
		out := tool.ErrorOutcome(&tool.Failure{Kind: tool.Rejected, Message: "this call was refused, and did not run: " + h.Refused, Detail: c.Name})
		c.refused = &out
		return
	}
	if h.Args != "" {
		r.edit(c, h.Args)
	}
}

// edit replaces the model's arguments.
func (r *round) edit(c *toolCall, args string) {
	c.edited = args
	r.bind(c, args)
}

// reviewed returns an outcome as changed by the agent's hook.
func (r hooking) reviewed(ctx context.Context, c *toolCall, out tool.Outcome) tool.Outcome {
	if r.after == nil || c.refused != nil || out.Err != nil && !out.IsError {
		return out
	}
	var read tool.Result
	err := c.st.authored(protected(c.st.context(ctx), func(ctx context.Context) (err error) {
		read, err = r.after(ctx, c.spec, c.args, tool.Result{Body: tool.JSON(out.Body), IsError: out.IsError, Images: out.Images})
		return err
	}))
	if err != nil {
		return tool.ErrorOutcome(&tool.Failure{Kind: tool.Rejected, Message: "the result of this call is withheld: " + err.Error(), Detail: c.Name, Err: err})
	}
	if body, ok := read.Body.(tool.JSON); ok && string(body) == string(out.Body) && read.IsError == out.IsError && slices.Equal(read.Images, out.Images) {
		return out
	}
	seen := tool.ResultOutcome(ctx, read.Body, r.ex.boxes.blobs())
	seen.Images, seen.IsError = read.Images, seen.IsError || read.IsError
	return seen
}

// end calls the agent's hook at its end. If the hook rejects the end, its reason is added
// to the session and the model is asked again.
func (a *agent) end(ctx context.Context, s session.Session) (session.Session, error) {
	refused, err := a.hook(ctx, "end", s, a.Hooks.End)
	if err == nil && refused != "" {
		s = s.With(session.UserText("You are not done: " + refused).Of(session.Origin{Agent: journal.ByHook}))
	}
	return s, err
}
