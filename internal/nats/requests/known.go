package requests

import (
	"context"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Known returns the state of tasks before they are submitted, in their order: nil for a
// task whose id is free, ErrSameTask for one that was submitted, run.ErrKeyReused if
// another body was, and the reason for one that was refused.
func (c *Requests) Known(ctx context.Context, t session.Tenant, workflow string, tasks []messages.Task) ([]error, error) {
	out := make([]error, len(tasks))
	for from := 0; from < len(tasks); from += wire.MaxTasks {
		some := tasks[from:min(from+wire.MaxTasks, len(tasks))]
		var q wire.Query
		for i := range some {
			q.Tasks = append(q.Tasks, some[i].ID)
		}
		var known wire.Tasks
		if err := c.Ask(ctx, t, messages.QueryTasks, q, &known); err != nil {
			return nil, err
		}
		by := make(map[run.ID]*wire.KnownTask, len(known.Tasks))
		for i := range known.Tasks {
			by[known.Tasks[i].Run] = &known.Tasks[i]
		}
		for i := range some {
			if k := by[some[i].ID]; k != nil {
				out[from+i] = knownAs(t, workflow, &some[i], k)
			}
		}
	}
	return out, nil
}

// ErrSameTask is the error of Known for a task that was submitted.
var ErrSameTask = errors.New("nats/requests: the same task was submitted")

func knownAs(t session.Tenant, workflow string, task *messages.Task, k *wire.KnownTask) error {
	digest, err := task.Digest(t, workflow)
	switch {
	case err != nil:
		return err
	case k.Digest == "":
		return fmt.Errorf("task %s: %w: it was cancelled before it was submitted; submit it under another id", task.ID, run.ErrState)
	case k.Digest != digest:
		return fmt.Errorf("task %s: %w; choose another id, or send the same body", task.ID, run.ErrKeyReused)
	case k.Refused != "":
		return k.Refused.Err(fmt.Sprintf("task %s was rejected before (%s); submit it under another id", task.ID, k.Refused))
	}
	return ErrSameTask
}
