package actors

import (
	"context"
	"fmt"
	"time"

	"github.com/rathcluster/rath/run"
)

const (
	// IdleMost is the number of sessions in memory from which idle ones leave it after
	// crowded instead of Options.Passivate.
	IdleMost = 256
	crowded  = 250 * time.Millisecond
)

// idleFor returns how long an idle session stays in memory.
func (s *System) idleFor() time.Duration {
	// An activation that is about to start may not be counted itself yet.
	if s.Active() >= IdleMost {
		return min(s.o.Passivate, crowded)
	}
	return s.o.Passivate
}

// passivate stops an idle actor, unless a run executes on its epoch: passivation would
// end the run.
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

// executing reports whether, by the log, a run executes on this activation.
func (a *sessionActor) executing() bool {
	b := a.w.RunState()
	r := b.Run(b.Active)
	return r != nil && r.State == run.Running && a.w.Epoch() != 0 && r.Epoch == a.w.Epoch()
}

// leave stores a snapshot, which spares the next activation reading the log, and stops
// the actor if no request arrived meanwhile.
func (a *sessionActor) leave() {
	timeout := a.sys.o.AppendTimeout
	if a.stop {
		timeout = min(timeout, LastSave)
	}
	save := func(*outcome) {}
	if a.needsSnapshot() {
		save = a.snapshot(timeout)
	}
	a.async(saving, save)
}

// saveWhileActive stores a snapshot while the actor continues, so that an interrupted
// run of many steps is restored quickly. At most one save is in progress.
func (a *sessionActor) saveWhileActive() {
	if a.saving || a.w.SinceSnapshot() < a.sys.o.SnapshotEvery {
		return
	}
	save := a.snapshot(a.sys.o.AppendTimeout)
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

// warnUnsaved logs that a snapshot could not be stored, which costs time, not data.
func (a *sessionActor) warnUnsaved(err error) {
	if err != nil {
		a.sys.log.Warn("snapshot not saved; the next activation reads more of the log", "session", a.key.String(), "err", err)
	}
}

// LongTail is the number of commits after a session's last snapshot from which the
// session leaves another one when it leaves memory. Fewer commits are read from the log
// as quickly as from a snapshot, which would store all their texts a second time.
const LongTail = 64

// needsSnapshot reports whether enough commits follow the last snapshot. An open fork's
// first snapshot is always worth storing: it contains the fork's share of its
// ancestors, whose logs are otherwise read one after another.
func (a *sessionActor) needsSnapshot() bool {
	v, tail := a.w.Session(), a.w.SinceSnapshot()
	if tail >= LongTail {
		return true
	}
	first := a.w.Epoch() != 0 && tail == int(a.w.At().Seq)
	for range v.Parents() {
		return first && v.Closing().State == ""
	}
	return false
}

// LastSave bounds how long a stopping System saves the snapshots of its sessions: a
// missing snapshot only costs time, so a stop must not wait for an absent log.
const LastSave = 5 * time.Second

// snapshot captures the state as of the last commit, and returns a function that saves
// it within timeout.
func (a *sessionActor) snapshot(timeout time.Duration) func(o *outcome) {
	if !a.sys.snapshots {
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
