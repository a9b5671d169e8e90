package actors

import (
	"context"
	"errors"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
)

// suspects are the runs here that lost their nodes before, see [journal.SuspectError]. They
// are suspects until they record a step. The lock of executions guards it.
type suspects struct {
	groups map[runKey]int // those that execute or are being claimed: how many each goes with
	proven int            // executions that have recorded a step
}

// closed reports whether a suspect has this node to itself, or waits for that: then
// nothing else begins.
func (s *suspects) closed() bool {
	for _, group := range s.groups {
		return group == 1 // such a one is here without other suspects
	}
	return false
}

// share notes a suspect that goes with so many others, if they do with it.
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

// clear takes back the notes of share.
func (x *executions) clear(k runKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.suspects.groups, k)
	x.changed()
}

// prove notes that a run which executes here has recorded a step.
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

// unproven returns how many slots are taken by runs that have recorded no step here, and a channel
// that is closed when that may have changed.
func (x *executions) unproven() (n int, changed <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.slots) - x.suspects.proven, x.ended
}

// clearing bounds how long a node takes nothing else for a suspect that is to be alone.
const clearing = 30 * time.Second

// claimSuspect claims a suspect that has a slot, in a group that this node can promise.
func (s *System) claimSuspect(ctx context.Context, t journal.Task, suspect *journal.SuspectError, release func()) (journal.Answer, error) {
	k := keyOf(t)
	if t.Group = max(1, suspect.Group); s.o.LastWords != nil {
		t.Death = s.o.LastWords(ctx, suspect.Deaths.Node)
	}
	if suspect.Guilty {
		ex, err := s.claimed(ctx, t)
		return s.begun(ctx, t, ex, err, release)
	}
	if !s.executions.share(k, t.Group) {
		release()
		return journal.AnswerCrowded, nil
	}
	s.log.Warn("a run lost its nodes and is claimed as a suspect", "run", string(t.ID), "session", t.Session.String(),
		"deaths", suspect.Deaths.All, "node", suspect.Deaths.Node, "death", t.Death, "group", t.Group)
	if n, _ := s.executions.unproven(); t.Group > 1 || n <= 1 {
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

// claimShared claims a suspect that share noted.
func (s *System) claimShared(ctx context.Context, t journal.Task, release func()) (journal.Answer, error) {
	ex, err := s.claimed(ctx, t)
	if err != nil || ex.State() != run.Running {
		s.executions.clear(keyOf(t))
	}
	if _, ok := errors.AsType[*journal.SuspectError](err); ok { // another node lost it meanwhile
		release()
		return journal.AnswerCrowded, nil
	}
	return s.begun(ctx, t, ex, err, release)
}

// clearFor claims a suspect once nothing else executes here that has recorded no step.
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
