package actors

import (
	"context"
	"errors"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
)

// suspects are the runs here that lost their nodes before, see [journal.SuspectError].
// A run remains a suspect until it records a step. The lock of executions guards the
// fields.
type suspects struct {
	groups map[runKey]int // the size of each suspect's group, from its claim to its first step
	proven int            // executions that have recorded a step
}

// closed reports whether a suspect has this node to itself, or waits for that: then no
// other run begins.
func (s *suspects) closed() bool {
	for _, group := range s.groups {
		return group == 1 // this suspect is alone here
	}
	return false
}

// share admits a suspect to a group of at most that size, if the other suspects' groups
// have room for it too.
func (x *executions) share(k runKey, group int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	least := group
	for other, g := range x.suspects.groups {
		if other == k {
			return false
		}
		least = min(least, g)
	}
	if len(x.suspects.groups) >= least {
		return false
	}
	x.suspects.groups[k] = group
	return true
}

// clear undoes share.
func (x *executions) clear(k runKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.suspects.groups, k)
	x.changed()
}

// prove records that a run which executes here has recorded a step.
func (x *executions) prove(k runKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.running[k]; s != nil && !s.proven {
		s.proven = true
		x.suspects.proven++
		delete(x.suspects.groups, k)
		x.changed()
	}
}

// unproven returns the number of slots whose runs have recorded no step here, and a
// channel that is closed when that number may have changed.
func (x *executions) unproven() (n int, changed <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.slots) - x.suspects.proven, x.ended
}

// clearing bounds how long a node accepts no other runs for a suspect that must be
// alone.
const clearing = 30 * time.Second

// claimSuspect claims a suspect that has a slot, in a group that this node can
// guarantee.
func (s *System) claimSuspect(ctx context.Context, t journal.Task, suspect *journal.SuspectError, release func()) (journal.Answer, error) {
	k := keyOf(t)
	as := &journal.Suspect{Group: max(1, suspect.Group)}
	if t.Suspect != nil {
		as.Death = t.Suspect.Death
	} else if s.o.LastWords != nil {
		as.Death = s.o.LastWords(ctx, suspect.Deaths.Node)
	}
	t.Suspect = as
	if suspect.Guilty {
		ex, err := s.claimed(ctx, t)
		return s.begun(ctx, t, ex, err, release)
	}
	if !s.executions.share(k, as.Group) {
		release()
		return journal.AnswerCrowded, nil
	}
	s.log.Warn("a run lost its nodes and is claimed as a suspect", "run", string(t.ID), "session", t.Session.String(),
		"deaths", suspect.Deaths.All, "node", suspect.Deaths.Node, "death", as.Death, "group", as.Group)
	if n, _ := s.executions.unproven(); as.Group > 1 || n <= 1 {
		return s.claimShared(ctx, t, release)
	}
	if err := s.executions.enter(k); err != nil {
		s.executions.clear(k)
		release()
		return "", err
	}
	s.drain.begins.Add(1)
	s.work.Run(func() {
		defer s.drain.begins.Done()
		defer s.executions.leave(k)
		s.clearFor(ctx, t, suspect, release)
	})
	return journal.AnswerClearing, nil
}

// claimShared claims a suspect that share has admitted.
func (s *System) claimShared(ctx context.Context, t journal.Task, release func()) (journal.Answer, error) {
	ex, err := s.claimed(ctx, t)
	if err != nil || ex.State() != run.Running {
		s.executions.clear(keyOf(t))
	}
	if _, ok := errors.AsType[*journal.SuspectError](err); ok { // another node has died with it since
		release()
		return journal.AnswerCrowded, nil
	}
	return s.begun(ctx, t, ex, err, release)
}

// clearFor claims a suspect once all other runs here have recorded a step or ended.
func (s *System) clearFor(ctx context.Context, t journal.Task, suspect *journal.SuspectError, release func()) {
	limit := time.NewTimer(clearing)
	defer limit.Stop()
	for {
		n, changed := s.executions.unproven()
		if n <= 1 {
			break
		}
		select {
		case <-changed:
			continue
		case <-limit.C:
			s.log.Info("a suspect is not alone here in time and is claimed later", "run", string(t.ID), "session", t.Session.String(), "others", n-1)
		case <-s.drain.begun:
		}
		s.executions.clear(keyOf(t))
		release()
		if suspect.Deaths.Node == s.o.Incarnation { // no relay offers it
			s.work.Run(func() { s.reclaim(t) })
		}
		return
	}
	if _, err := s.claimShared(ctx, t, release); err != nil {
		s.log.Info("a suspect could not be claimed", "run", string(t.ID), "session", t.Session.String(), "err", err)
	}
}
