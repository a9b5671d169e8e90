package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// controlQuota changes the quota of a tenant: first its entry in the registry, which nodes
// read before runs and model calls, then its log, which lets those begin that wait. A
// request that fails in between is to be repeated.
func (c *controls) controlQuota(ctx context.Context, of wire.Controlled, data []byte, apply func(ctx context.Context, s journal.Signal) error) error {
	body, err := messages.DecodeControl(data)
	if err != nil {
		return err
	}
	if err := body.Check(of.Verb); err != nil {
		return err
	}
	if of.ID != string(of.Tenant) {
		return fmt.Errorf("the quota of tenant %s: %w: the subject is for tenant %s", of.ID, session.ErrTenant, of.Tenant)
	}
	l, err := c.all.Dispatch.Quotas.Change(ctx, of.Tenant, of.Verb, of.User, body)
	if err != nil {
		return err
	}
	return apply(ctx, journal.Signal{
		To:    session.Key{Tenant: of.Tenant, ID: l.Log},
		Limit: &journal.LimitSignal{Set: &journal.LimitSet{By: of.User, Limit: l.Limit(), Says: body.By}},
	})
}

// quota returns the quota of a tenant and its usage today.
func (a answerer) quota(ctx context.Context, t session.Tenant, _ wire.Query) (any, error) {
	out, err := a.c.Dispatch.Quotas.Status(ctx, t)
	if err != nil || out.Setting == 0 {
		return out, err
	}
	l, err := limits(ctx, a.c.Logs.Log(), session.Key{Tenant: t, ID: journal.QuotaLog(a.c.Logs.Minter(), t)})
	if errors.Is(err, session.ErrNotFound) || errors.Is(err, run.ErrUnknownRun) {
		return out, nil
	}
	if l != nil {
		out.Used.Runs, out.Used.Running = l.BegunOn(journal.DayOf(time.Now())), int64(len(l.Holders))
		out.Used.Waiting, out.Used.Blocked = int64(len(l.Waiting)), int64(len(l.Blocked))
	}
	return out, err
}

// limits returns the state of the log of a limit, nil if there is none.
func limits(ctx context.Context, log commitlog.Log, k session.Key) (*journal.LimitState, error) {
	w, err := journal.LoadStateMachine(ctx, log, journal.NewValues(log), k, "")
	if err != nil {
		return nil, err
	}
	return w.RunState().Limits(), nil
}
