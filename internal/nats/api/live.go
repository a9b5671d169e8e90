package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/live"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// tellTimeout bounds how long the node that executes a run may take to report its
	// progress. It answers from memory, at once if it is well.
	tellTimeout = 2 * time.Second
	// standAgain is the pause before the relay is asked again about a run that is not at
	// the node it named, and standTries the number of attempts: its commit may be on the
	// way to the relay.
	standAgain = 50 * time.Millisecond
	standTries = 5
)

// askedLive is the body of the verb messages.NodeLive.
type askedLive struct {
	Tenant session.Tenant `json:"tenant"`
	Run    run.ID         `json:"run"`
}

// toldLive is the answer to it. Here is whether the run executes at this node.
type toldLive struct {
	Here bool           `json:"here"`
	Live *messages.Live `json:"live,omitempty"`
}

// ServeLive answers with the progress of the runs that this incarnation executes, which
// tell returns.
func (c *Conn) ServeLive(ctx context.Context, incarnation string, tell func(session.Tenant, run.ID) (live.Report, bool)) (*conn.Service, error) {
	return c.ServeNode(ctx, incarnation, messages.NodeLive, func(_ context.Context, body []byte) (any, error) {
		var q askedLive
		if err := json.Unmarshal(body, &q); err != nil {
			return nil, fmt.Errorf("run to tell of: %w: %w", run.ErrMalformed, err)
		}
		return here(tell(q.Tenant, q.Run)), nil
	})
}

// here converts the progress of an execution to its wire form.
func here(l live.Report, ok bool) toldLive {
	if !ok {
		return toldLive{}
	}
	out := &messages.Live{Attempt: l.Attempt, Since: stamp(l.Since), More: max(len(l.Steps)-messages.MaxLiveSteps, 0)}
	for _, s := range l.Steps[:min(len(l.Steps), messages.MaxLiveSteps)] {
		out.Steps = append(out.Steps, messages.LiveStep{
			Step: s.Path, Kind: s.Kind, Name: s.Name, Did: s.Did, Model: s.Model, Doing: string(s.Doing),
			Began: stamp(s.Began), At: stamp(s.At), Until: stamp(s.Until),
			Try: s.Try, Error: s.Error, Text: s.Text, From: s.From, N: s.N, Bytes: s.Bytes, Tokens: s.Tokens, Calls: s.Calls,
		})
	}
	return toldLive{Here: true, Live: out}
}

// stamp is a time as it travels; the zero time is 0.
func stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// live returns the current state of a run. The relay of its partition reports where it is,
// and the node that executes it reports its progress. The wait for each is bounded.
func (a answerer) live(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	if err := oneRun(q); err != nil {
		return nil, err
	}
	out := messages.Live{Run: q.Run, State: run.Queued}
	home, err := a.c.Logs.RunSession(ctx, t, q.Run)
	if errors.Is(err, run.ErrUnknownRun) {
		return a.untakenLive(ctx, t, out, err)
	}
	if err != nil {
		return nil, err
	}
	out.Session = home.ID
	for try := 1; ; try++ {
		st, err := a.c.Dispatch.Standing(ctx, home, q.Run)
		switch {
		case err != nil:
			return nil, fmt.Errorf("run %s: %w: %w", q.Run, session.ErrUnavailable, err)
		case st.State == "":
			info, err := a.run(ctx, t, q)
			if r, ok := info.(messages.RunInfo); err == nil && ok && r.State.Terminal() {
				out.State, out.At, out.Attempt, out.Node = r.State, stamp(time.Now()), r.Attempt, r.Node
				return out, nil
			}
			if try == standTries {
				return a.untakenLive(ctx, t, out, err)
			}
		default:
			if a.stands(ctx, t, &out, st, try == standTries) {
				out.At = stamp(time.Now())
				return out, nil
			}
		}
		if conn.Pause(ctx, standAgain); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// stands fills in the state of an open run. done is false if the run is not at the node
// that the relay named, unless this is the last attempt.
func (a answerer) stands(ctx context.Context, t session.Tenant, out *messages.Live, st schedule.Standing, last bool) (done bool) {
	out.Silent = false
	out.State, out.Attempt, out.Node, out.Behind, out.Due, out.Unbegun = st.State, st.Attempt, st.Holder, st.Behind, st.Due, st.Unbegun
	out.Unoffered = nil
	for _, u := range st.Unoffered {
		out.Unoffered = append(out.Unoffered, messages.LiveUnoffered(u))
	}
	if p := st.Queue; p != nil {
		out.Queue = &messages.LiveQueue{
			Pool: p.Pool, Revision: p.Revision, Class: messages.ClassInteractive, Ahead: p.Ahead, Waiting: p.Waiting, Nodes: p.Nodes, Free: p.Free, Sent: p.Sent, Again: p.Again,
		}
		if p.Batch {
			out.Queue.Class = messages.ClassBatch
		}
	}
	if out.Limit = nil; st.Limit != "" {
		out.Limit = a.limit(ctx, session.Key{Tenant: t, ID: st.Limit}, out.Run)
	}
	if st.State == run.Waiting || st.State == run.NeedsReview || st.Quarantined || st.After { // of these the lineage has the words
		info, err := a.run(ctx, t, wire.Query{Run: out.Run})
		if r, ok := info.(messages.RunInfo); err == nil && ok {
			out.Waits, out.Review, out.Quarantine = slices.Clone(r.Waits), r.Review, r.Quarantine
		}
		for i := range out.Waits {
			if w := &out.Waits[i]; st.After {
				w.Title = cmp.Or(w.Title, w.Name) + " (" + string(stateOf(ctx, a, t, run.ID(w.Name))) + ")"
			}
		}
	}
	if st.State != run.Running {
		return true
	}
	told, err := a.holder(ctx, t, out.Run, st.Holder)
	switch {
	case err != nil:
		out.Silent = true
		return st.Lost || last || !errors.Is(err, conn.ErrNoAnswer) // the relay soon notices that a node has left
	case !told.Here:
		return last
	}
	out.Attempt, out.Since, out.Steps, out.More = told.Live.Attempt, told.Live.Since, told.Live.Steps, told.Live.More
	return true
}

// stateOf returns the state of a run, "unknown" if it cannot be read.
func stateOf(ctx context.Context, a answerer, t session.Tenant, id run.ID) run.State {
	if info, err := a.run(ctx, t, wire.Query{Run: id}); err == nil {
		return info.(messages.RunInfo).State
	}
	return "unknown"
}

// limit returns the state of the limit that a run waits for, nil if it cannot be read or has
// just let the run begin.
func (a answerer) limit(ctx context.Context, k session.Key, id run.ID) *messages.LiveLimit {
	l, err := limits(ctx, a.c.Logs.Log(), k)
	if err != nil || l == nil {
		return nil
	}
	holders, before := l.Before(id)
	out := &messages.LiveLimit{
		Limit: l.Limit.String(), Holders: holders[:min(len(holders), messages.MaxLiveLimit)], Ahead: len(before), Before: before[:min(len(before), messages.MaxLiveLimit)],
	}
	if l.IsQuota() {
		out.Quota, out.Begun = true, l.BegunOn(journal.DayOf(time.Now()))
		out.Opens = l.Opens()
	}
	return out
}

// holder asks the incarnation that executes a run.
func (a answerer) holder(ctx context.Context, t session.Tenant, id run.ID, incarnation string) (told toldLive, err error) {
	if incarnation == a.Incarnation && a.Live != nil {
		return here(a.Live(t, id)), nil
	}
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	data, err := a.c.Requests.AskNode(ctx, incarnation, messages.NodeLive, askedLive{t, id})
	if err == nil {
		err = json.Unmarshal(data, &told)
	}
	return told, err
}

// untakenLive reports a run that no log holds: its task may wait for a node.
func (a answerer) untakenLive(ctx context.Context, t session.Tenant, out messages.Live, unknown error) (any, error) {
	info, err := a.run(ctx, t, wire.Query{Run: out.Run, All: true})
	r, ok := info.(messages.RunInfo)
	if err != nil || !ok {
		return nil, cmp.Or(err, unknown)
	}
	out.State, out.At, out.Attempt, out.Node = r.State, stamp(time.Now()), r.Attempt, r.Node
	out.Untaken = r.State == run.Queued
	return out, nil
}
