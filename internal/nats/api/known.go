package api

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// knownLooks is how many ids are looked up concurrently, and untakenMost how many unclaimed
// tasks are read for one answer.
const (
	knownLooks  = 32
	untakenMost = 1000
)

// tasks answers from the entries of ids and, for ids without one, from the tasks that no
// node has claimed. A node makes the entry before it takes the task out of the stream, so
// ids that are in neither are looked up once more.
func (a answerer) tasks(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	found := make([]*wire.KnownTask, len(q.Tasks))
	missing := map[run.ID]int{}
	for i, id := range q.Tasks {
		missing[id] = i
	}
	err := a.amongEntries(ctx, t, missing, found)
	if err == nil && len(missing) > 0 {
		err = a.amongUntaken(ctx, t, missing, found)
	}
	if err == nil && len(missing) > 0 {
		err = a.amongEntries(ctx, t, missing, found)
	}
	if err != nil {
		return nil, err
	}
	out := wire.Tasks{Tasks: []wire.KnownTask{}}
	for _, k := range found {
		if k != nil {
			out.Tasks = append(out.Tasks, *k)
		}
	}
	return out, nil
}

// amongEntries reads the entries of ids, and takes those that have one out of missing.
func (a answerer) amongEntries(ctx context.Context, t session.Tenant, missing map[run.ID]int, found []*wire.KnownTask) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan run.ID)
	var looking sync.WaitGroup
	for range min(knownLooks, len(missing)) {
		looking.Go(func() {
			for id := range work {
				have, revision, err := eventlog.ReadAlias(ctx, a.c.Logs, eventlog.RunAliasSubject(t, id))
				if err != nil {
					cancel(err)
				} else if revision != 0 {
					found[missing[id]] = &wire.KnownTask{Run: id, Digest: have.Task(), Refused: have.Refused}
				}
			}
		})
	}
	for id := range missing {
		work <- id
	}
	close(work)
	looking.Wait()
	maps.DeleteFunc(missing, func(_ run.ID, i int) bool { return found[i] != nil })
	return context.Cause(ctx)
}

// amongUntaken searches the unclaimed tasks for ids; the first task of an id counts. The
// stream of tasks has no direct reads.
func (a answerer) amongUntaken(ctx context.Context, t session.Tenant, missing map[run.ID]int, found []*wire.KnownTask) error {
	for from, read := uint64(1), 0; len(missing) > 0 && read < untakenMost; read++ {
		m, err := a.c.Messages.LeaderNext(ctx, streams.StreamTasks, streams.PrefixTask+string(t)+".>", from)
		if errors.Is(err, conn.ErrNoMessage) {
			return nil
		}
		if err != nil {
			return err
		}
		from = m.Seq + 1
		task, err := messages.DecodeTask(m.Data)
		i, ok := missing[task.ID]
		_, _, workflow, parsed := messages.ParseTaskSubject(m.Subject)
		if err != nil || !ok || !parsed {
			continue
		}
		delete(missing, task.ID)
		if digest, err := task.Digest(t, workflow); err == nil {
			found[i] = &wire.KnownTask{Run: task.ID, Digest: digest}
		}
	}
	return nil
}
