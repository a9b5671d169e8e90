package view

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// LineagePage reads a page of lineage, as a client does: of the tree of a session, or of
// the whole tenant for "", after a cursor.
type LineagePage func(ctx context.Context, name, after string, limit int) (messages.LineagePage, error)

// Each calls fn with the lineage of a session's tree, or of all trees for "", from a
// cursor to its end.
func (read LineagePage) Each(ctx context.Context, id session.ID, after string, fn func(*messages.LineageRecord) error) error {
	for {
		page, err := read(ctx, string(id), after, 0)
		if err != nil {
			return err
		}
		for i := range page.Records {
			if err := fn(&page.Records[i]); err != nil {
				return err
			}
		}
		if !page.More {
			return nil
		}
		after = page.Next
	}
}

// ErrNoLineage means that no record of a session has been derived yet.
var ErrNoLineage = errors.New("no lineage yet")

// Graph reads the lineage of a session's tree.
func (read LineagePage) Graph(ctx context.Context, t session.Tenant, id session.ID) (*lineage.Graph, session.Key, error) {
	g := lineage.NewGraph()
	root := session.Key{Tenant: t}
	err := read.Each(ctx, id, "", func(r *messages.LineageRecord) error {
		g.Add(r.Record)
		root.ID = r.Record.Root
		return nil
	})
	if err == nil && root.ID == "" {
		err = fmt.Errorf("session %s has %w", id, ErrNoLineage)
	}
	if err != nil {
		return nil, session.Key{}, err
	}
	return g, root, nil
}

// mostTrees bounds the trees that are read in addition to a run's own.
const mostTrees = 256

// RunGraph reads the lineage of the tree of a run's session, and the trees of the
// sessions that the run opened beside it, for example to take notes by a model.
func (read LineagePage) RunGraph(ctx context.Context, t session.Tenant, r *messages.RunInfo) (*lineage.Graph, session.Key, error) {
	g, root, err := read.Graph(ctx, t, r.Session)
	if err != nil {
		return nil, root, err
	}
	tried := map[session.ID]bool{}
	for more := true; more; {
		more = false
		for _, id := range g.Beside(t, r.Run) {
			if tried[id] || len(tried) == mostTrees {
				continue
			}
			tried[id], more = true, true
			err := read.Each(ctx, id, "", func(r *messages.LineageRecord) error {
				g.Add(r.Record)
				return nil
			})
			if err != nil && !errors.Is(err, session.ErrNotFound) { // the step was cut off before it began
				return nil, root, err
			}
		}
	}
	return g, root, nil
}

const (
	// liveAtOnce bounds the concurrent requests, and LiveRows the runs of a list that
	// are asked about: the notes of the others come from recorded data.
	liveAtOnce = 8
	LiveRows   = 64
	// liveWithin bounds the requests of a list, which is shown even without answers.
	liveWithin = 2 * time.Second
)

// LiveNotes requests the progress of the open runs whose waits lineage does not
// explain: branches may wait for a node.
func LiveNotes(ctx context.Context, live func(context.Context, run.ID) (messages.Live, error), runs []messages.RunInfo) map[run.ID]*messages.Live {
	ctx, cancel := context.WithTimeout(ctx, liveWithin)
	defer cancel()
	var open []run.ID
	for i := range runs {
		forBranches := func(w messages.Wait) bool { return w.Kind == run.WaitBranches }
		if st := runs[i].State; st == run.Running || st == run.Queued || st == run.Waiting && slices.ContainsFunc(runs[i].Waits, forBranches) {
			open = append(open, runs[i].Run)
		}
	}
	open = open[:min(len(open), LiveRows)]
	var mu sync.Mutex
	out := make(map[run.ID]*messages.Live, len(open))
	room := make(chan struct{}, liveAtOnce)
	var asking sync.WaitGroup
	for _, id := range open {
		room <- struct{}{}
		asking.Go(func() {
			defer func() { <-room }()
			if l, err := live(ctx, id); err == nil {
				mu.Lock()
				out[id] = &l
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	return out
}

// StuckOf returns the open runs that are stuck, the oldest first; runs are the newest
// first. It asks the nodes about the oldest running and queued ones. unasked reports
// whether others were not asked about.
func StuckOf(ctx context.Context, live func(context.Context, run.ID) (messages.Live, error), runs []messages.RunInfo) (stuck []TopStuck, unasked bool) {
	runs = slices.Clone(runs)
	slices.Reverse(runs)
	notes := LiveNotes(ctx, live, runs)
	out := []TopStuck{}
	for i := range runs {
		r := &runs[i]
		l := notes[r.Run]
		if l == nil {
			unasked = unasked || r.State == run.Running || r.State == run.Queued
			l = &messages.Live{Run: r.Run, State: r.State, At: time.Now().UnixMilli(), Review: r.Review, Quarantine: r.Quarantine}
		}
		if why := Stuck(l); why != "" {
			out = append(out, TopStuck{Run: r.Run, State: r.State, Workflow: r.Workflow, Why: why, Since: r.Submitted, Retries: Retries(l)})
		}
	}
	return out, unasked
}
