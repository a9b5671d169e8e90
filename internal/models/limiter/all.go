package limiter

import (
	"context"
	"errors"
)

// All is the limiter of calls that several limits hold for, such as that of a model and that
// of its key. Of no limits it is nil.
func All(limits ...*Limit) Limiter {
	switch len(limits) {
	case 0:
		return nil
	case 1:
		return limits[0]
	}
	return all(limits)
}

type all []*Limit

// errHeld ends the wait for a limit while another one's permit is held.
var errHeld = errors.New("limiter: another limit is to be waited for first")

// Acquire implements Limiter. A permit is held for half of the slack at most, so that a
// request is sent about when it is counted. If another limit has none by then, the permit
// goes back and that limit is waited for first.
func (a all) Acquire(ctx context.Context, tenant string, tokens int64) (settle func(used int64), err error) {
	for first := 0; ; {
		permits := make([]permit, 0, len(a))
		one, err := a[first].acquire(ctx, tenant, tokens)
		if err != nil {
			return nil, err
		}
		permits = append(permits, one)
		within, cancel := context.WithTimeoutCause(ctx, a[0].set.terms.slack/2, errHeld)
		last := first
		for i, l := range a {
			if i == last {
				continue
			}
			if one, err = l.acquire(within, tenant, tokens); err != nil {
				first = i
				break
			}
			permits = append(permits, one)
		}
		cancel()
		if err == nil {
			return func(used int64) {
				for i := range permits {
					permits[i].settle(used)
				}
			}, nil
		}
		for i := range permits {
			permits[i].unused()
		}
		if !errors.Is(err, errHeld) {
			return nil, err
		}
	}
}

var _ Limiter = all{}
