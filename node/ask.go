package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Drained is closed when an operator asks this node to drain: `rath cluster nodes
// drain`, and when more than 64 functions of its workflows ignore a cancel or a deadline.
// The program should then close the node, which gives its runs to others. A node with
// Options.Idle rejects the request, because it has no runs.
func (n *Instance) Drained() <-chan struct{} { return n.drained }

// drain asks the program to close the node.
func (n *Instance) drain(why string, args ...any) {
	n.drainOnce.Do(func() {
		n.o.Logger.Info(why, args...)
		close(n.drained)
	})
}

// maxLeaked bounds the functions of workflows that were given up and have not returned. Past
// it the node drains: the end of its process ends them.
const maxLeaked = 64

// leaks notes the number of those functions.
func (n *Instance) leaks(count int) {
	if count > maxLeaked {
		n.drain("the node drains: too much code of workflows ignores the end of its context", "functions", count)
	}
}

// serveNode answers requests for this incarnation itself, also while it drains: a
// client that waits for the node's end asks until it gets no answer.
func (n *Instance) serveNode(own *serviceGroup) error {
	c, incarnation := n.link.conn, n.link.incarnation
	drain := func(context.Context, []byte) (any, error) {
		if n.o.Idle {
			return nil, fmt.Errorf("node %s relays only and has no work to give away: %w", n.o.Name, run.ErrState)
		}
		n.drain("asked to drain")
		return wire.Answer{Done: true}, nil
	}
	if err := own.add(c.ServeNode(own.ctx, incarnation, messages.NodeDrain, drain)); err != nil {
		return err
	}
	if err := own.add(c.ServeNode(own.ctx, incarnation, messages.NodeReplay, n.replays.answer)); err != nil {
		return err
	}
	return own.add(c.ServeLive(own.ctx, incarnation, n.system.Live))
}

// askedReplay is the body of the verb messages.NodeReplay.
type askedReplay struct {
	Tenant  session.Tenant `json:"tenant"`
	Session session.ID     `json:"session"` // the run's home
	Run     run.ID         `json:"run"`
}

// maxReplayQuery bounds askedReplay, in bytes: three ids and their names.
const maxReplayQuery = 4 << 10

// readReplay reads the body of the verb messages.NodeReplay and checks its ids. Its
// errors are session.ErrTooLarge and run.ErrMalformed.
func readReplay(body []byte) (home session.Key, id run.ID, err error) {
	if len(body) > maxReplayQuery {
		return home, "", fmt.Errorf("node: the name of a run to replay has %d bytes, at most %d are read: %w", len(body), maxReplayQuery, session.ErrTooLarge)
	}
	var r askedReplay
	if err := json.Unmarshal(body, &r); err != nil {
		return home, "", fmt.Errorf("node: read which run to replay: %w: %w", run.ErrMalformed, err)
	}
	home = session.Key{Tenant: r.Tenant, ID: r.Session}
	return home, r.Run, errors.Join(home.Valid(), session.ValidID("run", string(r.Run)))
}

// replays runs the code of runs against their journals.
type replays struct {
	o      *Options
	link   *link
	offer  *offer
	values *journal.Values
}

// answer answers the verb messages.NodeReplay with the code of this node.
func (p *replays) answer(ctx context.Context, body []byte) (any, error) {
	home, id, err := readReplay(body)
	if err != nil {
		return nil, err
	}
	g, err := p.registration(ctx, home, id)
	if err != nil {
		return nil, err
	}
	return p.rehearse(ctx, g, home, id)
}

// registration returns the registration of a run's workflow, or an error that wraps
// run.ErrNotSupported and names the workflow.
func (p *replays) registration(ctx context.Context, home session.Key, id run.ID) (flow.Registration, error) {
	granted, err := p.values.Recorded(ctx, home, id)
	if err != nil {
		return flow.Registration{}, err
	}
	g, ok := p.offer.registry.Lookup(granted.Record.Task.Workflow)
	if !ok {
		g.Name = granted.Record.Task.Workflow
		err = fmt.Errorf("node %s does not offer workflow %q: %w", p.o.Name, g.Name, run.ErrNotSupported)
	}
	return g, err
}

// run runs the code of a run against its journal, here or on a node that
// offers the workflow.
func (p *replays) run(ctx context.Context, home session.Key, id run.ID) (messages.Replay, error) {
	g, err := p.registration(ctx, home, id)
	if err == nil {
		return p.rehearse(ctx, g, home, id)
	}
	if !errors.Is(err, run.ErrNotSupported) {
		return messages.Replay{}, err
	}
	nodes, err := p.offering(ctx, home.Tenant, g.Name)
	if err != nil {
		return messages.Replay{}, err
	}
	for _, other := range nodes {
		var out messages.Replay
		data, err := p.link.conn.Requests.AskNode(ctx, other, messages.NodeReplay, askedReplay{Tenant: home.Tenant, Session: home.ID, Run: id})
		if errors.Is(err, conn.ErrNoAnswer) {
			continue // it has ended meanwhile
		}
		if err == nil {
			if err = json.Unmarshal(data, &out); err != nil {
				err = fmt.Errorf("node %s: replay: %w", other, err)
			}
		}
		return out, err
	}
	return messages.Replay{}, fmt.Errorf("no node that lives offers workflow %q, whose code is needed: %w; start one that does", g.Name, run.ErrNotSupported)
}

// offering returns the incarnations of the pools that offer a tenant a workflow.
func (p *replays) offering(ctx context.Context, t session.Tenant, workflow string) ([]string, error) {
	ws, err := conn.Retry(ctx, func(ctx context.Context) ([]messages.Workflow, error) { return p.link.home.workflows(ctx) })
	if err != nil {
		return nil, err
	}
	offers := dispatch.OffersOf(ws, t, workflow, "")
	if len(offers) == 0 {
		return nil, nil
	}
	all, err := conn.Retry(ctx, p.link.home.nodes)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, o := range all {
		if o.Incarnation != p.link.incarnation && !o.Draining && visible(o.Incarnation, t) &&
			slices.ContainsFunc(offers, func(w messages.Workflow) bool { return slices.Contains(o.Pools, w.Pool) }) {
			out = append(out, o.Incarnation)
		}
	}
	return out, nil
}

// maxReplaySteps is the largest number of steps in an answer.
const maxReplaySteps = 3000

// rehearse replays a run with the code of this node.
func (p *replays) rehearse(ctx context.Context, g flow.Registration, home session.Key, id run.ID) (messages.Replay, error) {
	rt := &engine.Runtime{Values: p.values, Blobs: p.link.home.blobs, Mint: p.link.conn.Logs.Minter(), Node: p.link.incarnation, Model: p.o.Models.Default, Workflows: &p.offer.registry}
	r, err := engine.Replay(ctx, rt, g, home, id)
	if err != nil {
		return messages.Replay{}, err
	}
	out := messages.Replay{Matches: r.Matches(), Node: p.o.Name}
	room := maxReplaySteps
	var add func(r *engine.Replayed, of run.ID)
	add = func(r *engine.Replayed, of run.ID) {
		one := messages.ReplayedRun{
			Run: r.Run, Branch: r.Branch, BranchOf: of, Workflow: r.Workflow, Session: r.Session, State: r.State, Code: r.Code,
			Revisions: r.Revisions, Differs: r.Differs, Steps: []messages.ReplayStep{},
		}
		for _, s := range r.Steps {
			if room--; room < 0 && s.Verdict == engine.StepMatches {
				out.Truncated = true
				one.Omitted++
				continue
			}
			one.Steps = append(one.Steps, messages.ReplayStep{
				Path: s.Path, Verdict: s.Verdict, Recorded: s.Recorded, Asked: s.Asked, Input: s.Input, Summary: s.Summary,
			})
		}
		out.Runs = append(out.Runs, one)
		for _, b := range r.Branches {
			add(b, r.Run)
		}
	}
	add(r, "")
	return out, nil
}
