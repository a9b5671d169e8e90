package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// ReadSession is flow.ReadSession.
func (p *place) ReadSession(ctx context.Context, r session.Ref) (session.Session, error) {
	st, err := p.begin(ctx, journal.StepDo, "read", session.Session{}, false, "", r.String())
	if err != nil {
		return session.Session{}, err
	}
	defer st.end()
	st.exact = true
	var s session.Session
	err = st.make(func() (err error) {
		var l session.Link
		if err := st.decode(&l); err != nil {
			return err
		}
		if s, err = st.ex.rt.Values.Link(ctx, l); err != nil {
			return st.fail(fmt.Errorf("flow: read %s: %w: %w", l.Ref, session.ErrUnavailable, err))
		}
		return nil
	}, func() (d journal.StepCompleted, err error) {
		if s, err = st.ex.values.read(ctx, st.asked.Path, r); err != nil {
			return d, came(err)
		}
		d.Summary = "reads " + s.Ref().String()
		if l, ok := s.Link(); ok {
			d.Value, err = canonical.Marshal(l)
		}
		return d, err
	})
	if err != nil {
		return session.Session{}, err
	}
	return s, nil
}

func (x *reading) read(ctx context.Context, path run.Path, r session.Ref) (session.Session, error) {
	if r.Tenant != x.ex.home.Tenant {
		return session.Session{}, fmt.Errorf("flow: read %s of tenant %s in tenant %s: %w", r, r.Tenant, x.ex.home.Tenant, session.ErrTenant)
	}
	s, err := x.ex.rt.Values.At(ctx, r)
	if err == nil {
		err = x.notArchived(ctx, path, r.Key)
	}
	if err == nil {
		return s, nil
	}
	for _, lasting := range []error{session.ErrNotFound, session.ErrTenant, session.ErrArchived, session.ErrForeign, session.ErrTooOld} {
		if errors.Is(err, lasting) {
			return session.Session{}, fmt.Errorf("flow: read %s: %w", r, err)
		}
	}
	return session.Session{}, fmt.Errorf("flow: read %s: %w: %w", r, session.ErrUnavailable, err)
}

// notArchived fails for an archived session that the run does not hold, even if its value
// is cached: a session made from it could not be read without it.
func (r *reading) notArchived(ctx context.Context, path run.Path, k session.Key) error {
	if k == (session.Key{}) || r.ex.forks.holds(path, k) {
		return nil
	}
	err := r.ex.rt.Values.Archived(ctx, k)
	if err != nil && !errors.Is(err, session.ErrArchived) {
		err = fmt.Errorf("flow: session %s: %w: %w", k.ID, session.ErrUnavailable, err)
	}
	return err
}

// mayTake fails for a quarantined session, which must not be merged into another one: the
// run waits for review. branch is its name in a fan-out, "" for another session.
func (st *step) mayTake(branch string, k session.Key) error {
	what := "session " + string(k.ID)
	if branch != "" {
		what = fmt.Sprintf("branch %s (%s)", branch, what)
	}
	q, err := st.ex.rt.Values.Quarantined(st.ctx, k)
	switch {
	case err != nil:
		return fmt.Errorf("flow: %s: %w: %w", what, session.ErrUnavailable, err)
	case q == nil:
		return nil
	}
	err = st.review(run.CodeQuarantined, "%s is quarantined: %s; release it and resolve with %q", what, q.Reason, run.Again)
	return err
}
