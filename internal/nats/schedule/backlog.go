package schedule

import (
	"maps"
	"time"

	"github.com/rathcluster/rath/run"
)

// Backlog is the number of runs that wait for slots of a pool in a partition.
type Backlog struct {
	// Pool is "" while no node offers the workflow that a run needs.
	Pool  string
	Batch bool
	Runs  int
	// Since is when the longest wait began: the run became runnable then, or came back from
	// a node that failed to claim it, or this scheduler took over the partition.
	Since time.Time
}

// Backlogs returns the backlog of each pool and class with waiting runs. Its time grows
// with the waiting tenants and the runs without a pool, and not with the open runs.
func (s *slots) Backlogs() []Backlog {
	var all []Backlog
	for k, q := range s.queues {
		if q.len == 0 {
			continue
		}
		b := Backlog{Pool: k.pool, Batch: k.rank == batchRank, Runs: q.len}
		for _, l := range q.lines {
			// Both lists are in the order in which the runs began to wait.
			for _, first := range []*item{front(l.derived), front(l.fresh)} {
				b.waits(first)
			}
		}
		all = append(all, b)
	}
	var unplaced Backlog
	for _, g := range s.groups {
		if g.placed {
			continue
		}
		for it := range g.items {
			unplaced.Runs++
			unplaced.waits(it)
		}
	}
	if unplaced.Runs > 0 {
		all = append(all, unplaced)
	}
	return all
}

func (b *Backlog) waits(it *item) {
	if it != nil && (b.Since.IsZero() || it.since.Before(b.Since)) {
		b.Since = it.since
	}
}

// States returns how many runs are open in each state.
func (s *Scheduler) States() map[run.State]int { return maps.Clone(s.states) }
