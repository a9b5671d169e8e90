package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/stepper"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// cleanup is the part of an execution that executes the compensations of an ended run. The
// execution's mu guards it.
type cleanup struct {
	of       journal.Resumed
	deferred []deferred // in the order in which the code registers them
}

// deferred is a compensation.
type deferred struct {
	path    run.Path // of the step that registers it
	name    string
	fn      func(context.Context) error
	options flow.DeferOptions
}

// errReplayed ends the code of an ended run at its first step without a record.
var errReplayed = errors.New("flow: the run ended here, and its cleanup makes no further steps")

// Defer is flow.Defer.
func (p *place) Defer(ctx context.Context, name string, fn func(context.Context) error, o flow.DeferOptions) error {
	value, err := canonical.Marshal(journal.Deferred{Always: o.Always, Effect: o.Effect.String(), Timeout: o.Timeout.Milliseconds()})
	if err != nil {
		return fmt.Errorf("flow: options of compensation %q: %w", name, err)
	}
	if err := mayDefer(p, name); err != nil {
		return err
	}
	st, err := p.begin(ctx, journal.StepDefer, name, session.Session{}, false, "", value)
	if err != nil {
		return err
	}
	defer st.end()
	ex := st.ex
	return st.make(func() error {
		if st.record.Code == "" {
			ex.registered(deferred{st.asked.Path, name, fn, o})
		}
		return st.record.Code.Err(st.record.Error)
	}, func() (d journal.StepCompleted, err error) {
		ex.mu.Lock()
		account := ex.account.Account
		account.Deferred++
		err = account.Check() // for this step; the compensation is reserved beside it
		ex.mu.Unlock()
		if err == nil {
			d.Value, d.Summary = value, "defers "+strconv.Quote(name)
			ex.registered(deferred{path: st.asked.Path})
		}
		return d, came(err)
	})
}

// mayDefer returns an error where a run can have no compensation.
func mayDefer(p *place, name string) error {
	if p.in != nil {
		return nil // begin refuses it
	}
	ex := p.sc.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	switch own := ex.levels.own(); {
	case p.sc.prefix != "" || ex.task.Branch != nil && own.path == "":
		return fmt.Errorf("flow: compensation %q in a branch of a fan-out, a function of a Gather or an iteration of a Loop: %w; register it in the workflow around it", name, run.ErrNotSupported)
	case len(own.run) > run.MaxCleanedID && ex.cleans == nil && ex.task.Branch == nil:
		return fmt.Errorf("flow: compensation %q: the id of run %s is longer than %d bytes, so that it can have no cleanup run: %w; submit it under a shorter id", name, own.run, run.MaxCleanedID, run.ErrNotSupported)
	case ex.account.Deferred >= journal.MaxDeferred:
		return fmt.Errorf("flow: compensation %q: the run has %d, the maximum: %w", name, journal.MaxDeferred, run.ErrNotSupported)
	}
	return nil
}

// registered reserves the step of a compensation or, in a cleanup run, adds its function.
func (ex *Execution) registered(d deferred) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	switch {
	case ex.cleans != nil:
		ex.cleans.deferred = append(ex.cleans.deferred, d)
	case !ex.levels.outer(d.path):
		ex.account.Deferred++
	}
}

// compensate executes the compensations of the ended run, the last first, once its code
// has returned.
func (ex *Execution) compensate() (session.Session, error) {
	ex.mu.Lock()
	if errors.Is(ex.life.poison, errReplayed) {
		ex.life.poison = nil
	}
	err := ex.life.mayGoOn()
	if err == nil {
		err = ex.unregistered()
		ex.life.poison = err
	}
	all, own := ex.cleans.deferred, ex.levels.own()
	ex.sessions.hold(ex.home, &heldSession{}, ex.granted.Session, ex.granted.Session, false)
	ex.mu.Unlock()
	if err != nil {
		return session.Session{}, err
	}
	first, _ := strconv.Atoi(string(ex.cleans.of.Step))
	ex.root = scope{ex: ex, next: first}
	p := placeIn(&ex.root)
	ctx := stepper.With(ex.life.ctx, p)
	for _, d := range slices.Backward(all) {
		if ex.cleans.of.Ended.State == run.Succeeded && !d.options.Always {
			continue
		}
		at := p.sc.path()
		var none any
		err := p.Do(ctx, d.name, d.options.Effect, &tool.Retry{Times: 1}, &none, func(ctx context.Context) error { return within(ctx, ex.rt, d.options.Timeout, d.fn) })
		if err != nil && (ex.life.poison != nil || run.ComparePaths(at, own.from) >= 0) { // else the resumption leaves it out
			return session.Session{}, fmt.Errorf("compensation %q at step %s: %w", d.name, at, err)
		}
	}
	return ex.granted.Session, nil
}

// unregistered returns an error if the code did not reach a compensation of the ended run.
// ex.mu is held.
func (ex *Execution) unregistered() error {
	for _, s := range ex.pos.journal.Recorded() {
		if s.Kind == journal.StepDefer && s.Code == "" && !slices.ContainsFunc(ex.cleans.deferred, func(d deferred) bool { return d.path == s.Path }) {
			ex.pos.mismatch = s
			return fmt.Errorf("%w: the code did not come to step %s, which registers compensation %q", run.ErrMismatch, s.Path, s.Name)
		}
	}
	return nil
}

// deferGrace is the time after its timeout within which a compensation should return.
const deferGrace = 10 * time.Second

// within calls fn with a timeout. It does not wait for a function that ignores its context.
func within(ctx context.Context, rt *Runtime, timeout time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it did not end in %s: %w", timeout, context.DeadlineExceeded))
	defer cancel()
	done, returned := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(returned)
		done <- protected(ctx, fn)
	}()
	select {
	case err := <-done:
		return causedBy(ctx, err)
	case <-ctx.Done():
	}
	grace := time.NewTimer(deferGrace)
	defer grace.Stop()
	select {
	case err := <-done:
		return causedBy(ctx, err)
	case <-grace.C:
		rt.leak(returned)
		return fmt.Errorf("it ignores the end of its context, and runs on: %w", context.Cause(ctx))
	}
}

// causedBy adds the reason to an error of a function whose context has ended.
func causedBy(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}
