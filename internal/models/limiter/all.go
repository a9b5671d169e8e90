package limiter

import (
	"context"
	"errors"
)

// All is the limiter of calls with several limits, such as that of a model and that of
// its key. Without limits it is nil.
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

// errHeld ends the wait for a limit while the permit of another one is held.
var errHeld = errors.New("limiter: another limit is to be waited for first")

// Acquire implements Limiter. It holds a permit for half of the slack at most, so that
// a request is sent at about the time for which it is counted. If another limit has no
// permit by then, it returns the permit and waits for that limit first.
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
