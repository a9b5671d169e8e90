package actors

import (
	"context"
	"fmt"
	"time"

	"github.com/rathcluster/rath/run"
)

const (
	// IdleMost is how many sessions may be in memory before those that have nothing
	// to do leave it after crowded instead of Options.Passivate.
	IdleMost = 1024
	crowded  = time.Second
)

// idleFor is how long a session stays that has nothing to do.
func (s *System) idleFor() time.Duration {
	// An activation that is about to start may not be counted itself yet.
	if s.Active() >= IdleMost {
		return min(s.o.Passivate, crowded)
	}
	return s.o.Passivate
}

// passivate stops an actor that has had nothing to do, unless a run executes
// on its epoch: passivation would end that.
func (a *sessionActor) passivate() {
	if a.phase == ended {
		return
	}
	quiet, stays := time.Since(a.used), a.sys.idleFor()
	switch {
	case a.phase != idle || a.saving || a.executing():
		a.timer.Reset(stays)
	case quiet < stays:
		a.timer.Reset(stays - quiet)
	default:
		a.leave()
	}
}

// executing reports whether the log says that a run executes here.
func (a *sessionActor) executing() bool {
	b := a.w.RunState()
	r := b.Run(b.Active)
	return r != nil && r.State == run.Running && a.w.Epoch() != 0 && r.Epoch == a.w.Epoch()
}

// leave stores a snapshot of what the next activation would have to read, and
// stops the actor if nothing came in meanwhile.
func (a *sessionActor) leave() {
	timeout := a.sys.o.AppendTimeout
	if a.stop {
		timeout = min(timeout, LastSave)
	}
	a.async(saving, a.snapshot(a.w.Epoch() != 0, timeout))
}

// saveWhileActive stores a snapshot while the actor goes on, so that a run of many steps
// that is cut off is found again at once. One is under way at most.
func (a *sessionActor) saveWhileActive() {
	if a.saving || a.w.SinceSnapshot() < a.sys.o.SnapshotEvery {
		return
	}
	save := a.snapshot(true, a.sys.o.AppendTimeout)
	a.saving = true
	self, root := a.self, a.sys.protoactor.Root
	a.sys.work.Run(func() {
		done := &saved{}
		defer func() {
			if v := recover(); v != nil {
				done.err = fmt.Errorf("panic: %v", v)
			}
			root.Send(self, done)
		}()
		o := &outcome{}
		save(o)
		done.err = o.err
	})
}

// saved reports the end of saveWhileActive.
type saved struct {
	signal
	err error
}

func (a *sessionActor) saved(err error) {
	a.saving = false
	a.warnUnsaved(err)
}

// warnUnsaved says that a snapshot could not be stored, which costs time, not data.
func (a *sessionActor) warnUnsaved(err error) {
	if err != nil {
		a.sys.log.Warn("snapshot not saved; the next activation reads more of the log", "session", a.key.String(), "err", err)
	}
}

// readTail is how many commits an activation that wrote nothing has to have
// read before it leaves a snapshot to the next.
const readTail = 64

// shortLog is up to how many commits a log is read as quickly as a snapshot of it.
const shortLog = 8

// needsNoSnapshot reports whether a snapshot would only store a short log a second time: one
// in which nothing is open. A fork that may go on is another matter: a snapshot holds
// what it has of its ancestors, whose logs are read otherwise, one after another.
func (a *sessionActor) needsNoSnapshot() bool {
	b, v := a.w.RunState(), a.w.Session()
	if a.w.At().Seq > shortLog || b.Active != "" || len(b.Queue) > 0 {
		return false
	}
	for range v.Parents() {
		return v.Closing().State != ""
	}
	return true
}

// LastSave bounds how long the snapshots may take that sessions leave when a System
// stops: while the log is away a stop is not to wait for what only costs time.
const LastSave = 5 * time.Second

// snapshot takes the state as of the last commit, if there is enough that is
// new in it, and returns what saves it within timeout.
func (a *sessionActor) snapshot(wrote bool, timeout time.Duration) func(o *outcome) {
	least := 1
	if !wrote {
		least = readTail
	}
	if !a.sys.snapshots || a.w.SinceSnapshot() < least || a.needsNoSnapshot() {
		return func(*outcome) {}
	}
	snap, err := a.w.Snapshot()
	if err != nil {
		return func(o *outcome) { o.err = err }
	}
	log := a.sys.o.Log
	return func(o *outcome) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		o.err = snap.Save(ctx, log)
	}
}
