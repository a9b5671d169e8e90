package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// query sends a query and decodes the answer.
func query[T any](ctx context.Context, c *Client, verb string, q wire.Query) (T, error) {
	var v T
	data, err := c.requests.Query(ctx, c.tenant, verb, q)
	if err == nil {
		if err = json.Unmarshal(data, &v); err != nil {
			err = fmt.Errorf("answer to %s: %w", verb, err)
		}
	}
	return v, err
}

// RunsOptions select the runs to list; nil means all.
type RunsOptions struct {
	States   []run.State // only those in one of them
	Workflow string      // only those of one workflow
	By       string      // only those that a user submitted or resubmitted
	// Where selects runs, like "tool=grep and state=failed"; see lineage.ParseSelector.
	// A malformed selector is run.ErrMalformed.
	Where string
	Limit int // of rows; 0 means no limit
	// Progress is called while there is more to read, with the number of runs found and
	// the searched part of the history, from 0 to 1: finding few runs among many takes
	// long. It may be nil.
	Progress func(found int, part float64)
}

// Runs returns runs, the newest first.
func (c *Client) Runs(ctx context.Context, o *RunsOptions) ([]messages.RunInfo, error) {
	var opts RunsOptions
	if o != nil {
		opts = *o
	}
	var out []messages.RunInfo
	q := wire.Query{States: opts.States, Workflow: opts.Workflow, Where: opts.Where}
	if opts.By != "" {
		if err := messages.ValidUser(opts.By); err != nil {
			return nil, fmt.Errorf("list runs: %w", err)
		}
		q.Where = "by=" + opts.By
		if opts.Where != "" {
			q.Where += " and (" + opts.Where + ")"
		}
	}
	for all := uint64(0); ; {
		if opts.Limit > 0 {
			q.Limit = min(opts.Limit-len(out), 1000)
		}
		page, err := query[wire.Runs](ctx, c, messages.QueryRuns, q)
		if err != nil {
			return out, fmt.Errorf("list runs: %w", err)
		}
		out = append(out, page.Runs...)
		if q.After = page.Next; page.Next == 0 || opts.Limit > 0 && len(out) >= opts.Limit {
			return out, nil
		}
		if all = max(all, page.Next); opts.Progress != nil {
			opts.Progress(len(out), 1-float64(page.Next)/float64(all))
		}
	}
}

// Tasks returns the number of submitted tasks whose ids are kept, and how many of them
// no node has accepted yet: those are not runs.
func (c *Client) Tasks(ctx context.Context) (submitted, waiting uint64, err error) {
	page, err := query[wire.Runs](ctx, c, messages.QueryRuns, wire.Query{Limit: 1, All: true})
	if err != nil {
		return 0, 0, fmt.Errorf("count the tasks: %w", err)
	}
	return page.Submitted, page.Waiting, nil
}

// Run returns the record of a run, or of the most recently submitted one for
// messages.Last. It returns run.ErrUnknownRun for an unknown id.
func (c *Client) Run(ctx context.Context, id run.ID) (messages.RunInfo, error) {
	return query[messages.RunInfo](ctx, c, messages.QueryRun, wire.Query{Run: id})
}

// TaskWaits reports whether a task with this id waits for a node to accept it. It
// returns run.ErrBusy if too many tasks wait to search them.
func (c *Client) TaskWaits(ctx context.Context, id run.ID) (bool, error) {
	r, err := query[messages.RunInfo](ctx, c, messages.QueryRun, wire.Query{Run: id, All: true})
	if errors.Is(err, run.ErrUnknownRun) {
		return false, nil
	}
	return err == nil && r.State == run.Queued && r.Session == "", err
}

// Live returns the current state of a run: the work of the node that executes it, or
// the place and the reason of its wait. It queries that node and the relay of the run,
// and reads no log. The answer arrives within seconds, even if the node has died. It
// returns run.ErrUnknownRun for an unknown id.
func (c *Client) Live(ctx context.Context, id run.ID) (messages.Live, error) {
	return query[messages.Live](ctx, c, messages.QueryLive, wire.Query{Run: id})
}

// Result returns the outcome of a run. If the run has not ended, it returns
// run.ErrState with the run's status.
func (c *Client) Result(ctx context.Context, id run.ID) (messages.Result, error) {
	return query[messages.Result](ctx, c, messages.QueryResult, wire.Query{Run: id})
}

// Session returns a session with all its chunks. ref is an id or a name, with
// ":version" for an older version. It returns session.ErrNotFound if there is no such
// session or version.
func (c *Client) Session(ctx context.Context, ref string) (messages.Session, error) {
	return c.SessionAfter(ctx, ref, 0)
}

// SessionAfter is Session without the chunks before an index.
func (c *Client) SessionAfter(ctx context.Context, ref string, index uint64) (messages.Session, error) {
	q := wire.Query{Session: ref, After: index, Limit: wire.MaxLimit}
	var out messages.Session
	for first := true; ; first = false {
		page, err := query[messages.Session](ctx, c, messages.QuerySession, q)
		if err != nil {
			return out, err
		}
		if first {
			out = page
			// The following pages are of the same version.
			q.Session = string(page.Session) + ":" + strconv.FormatUint(uint64(page.Version), 10)
		} else {
			out.Chunks = append(out.Chunks, page.Chunks...)
		}
		if q.After = page.Next; page.Next == 0 {
			out.Next = 0
			return out, nil
		}
	}
}

// Graph returns the tree of the session with an id or a name. format "text", "mermaid"
// or "svg" adds its picture.
func (c *Client) Graph(ctx context.Context, name, format string) (messages.Graph, error) {
	if name == "" {
		return messages.Graph{}, fmt.Errorf("graph: %w: name a session, or list the trees with Roots", run.ErrMalformed)
	}
	q := wire.Query{Session: name, Format: format, Limit: wire.MaxLimit}
	var out messages.Graph
	for first := true; ; first = false {
		page, err := query[messages.Graph](ctx, c, messages.QueryGraph, q)
		if err != nil {
			return out, err
		}
		if first {
			out = page
		} else {
			out.Tree = append(out.Tree, page.Tree...)
		}
		if q.After, q.Format = page.Next, ""; page.Next == 0 {
			out.Next = 0
			return out, nil
		}
	}
}

// Roots returns the oldest session of each tree, the newest trees first; at
// most limit of them, 0 for all.
func (c *Client) Roots(ctx context.Context, limit int) ([]session.ID, error) {
	var out []session.ID
	for q := (wire.Query{}); ; {
		page, err := query[messages.Graph](ctx, c, messages.QueryGraph, q)
		if err != nil {
			return out, err
		}
		out = append(out, page.Roots...)
		if limit > 0 && len(out) >= limit {
			return out[:limit], nil
		}
		if q.After = page.Next; page.Next == 0 {
			return out, nil
		}
	}
}

// Workflows returns the offered workflows, sorted by name.
func (c *Client) Workflows(ctx context.Context) ([]messages.Workflow, error) {
	ws, err := query[wire.Workflows](ctx, c, messages.QueryWorkflows, wire.Query{})
	return ws.Workflows, err
}

// Nodes returns the live nodes, sorted by name, and for half a minute the dead ones,
// with Dead and Silent set.
func (c *Client) Nodes(ctx context.Context) ([]messages.Node, error) {
	ns, err := query[wire.Nodes](ctx, c, messages.QueryNodes, wire.Query{})
	return ns.Nodes, err
}

// Streams returns the usage of the streams that every run needs, sorted by name, as
// reported by the answering node. If the disk of the store is nearly full, "disk" is
// the first entry.
func (c *Client) Streams(ctx context.Context) ([]messages.StreamFill, error) {
	ns, err := query[wire.Nodes](ctx, c, messages.QueryNodes, wire.Query{})
	return ns.Streams, err
}
