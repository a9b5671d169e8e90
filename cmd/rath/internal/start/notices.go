package start

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
)

const (
	// fullEvery is how often a node in the foreground checks whether its store is full.
	fullEvery = time.Second
	// refusedMost bounds the lines about rejected tasks per refusedIn: beyond that only
	// their number is printed.
	refusedMost = 5
	refusedIn   = 10 * time.Second
)

// notices prints events on the terminal of a node in the foreground that otherwise only
// its clients see: rejected tasks, and a full store. The returned function ends it.
func notices(ctx context.Context, a *app.App, n *node.Instance) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	refused := make(chan string, refusedMost)
	var group sync.WaitGroup
	group.Go(func() {
		err := n.WatchDeadLetters(ctx, func(t session.Tenant, workflow string, l messages.DeadLetter) {
			select {
			case refused <- refusedLine(t, workflow, &l):
			case <-ctx.Done():
			}
		})
		if err != nil && ctx.Err() == nil {
			a.Err.Println(fmt.Sprintf("refused     rejected tasks are no longer printed: %s", messages.Text(err)))
		}
	})
	group.Go(func() {
		tick := time.NewTicker(fullEvery)
		defer tick.Stop()
		room := map[string]string{}
		last, told, more, began := "", 0, 0, time.Now()
		for {
			select {
			case line := <-refused:
				if line == last || told == refusedMost {
					more++
					continue
				}
				last = line
				told++
				a.Err.Println(line)
			case <-tick.C:
				if time.Since(began) >= refusedIn {
					if more > 0 {
						last = ""
						a.Err.Println(fmt.Sprintf("refused     %s more; see %q", view.Counted(int64(more), "task"), a.Hint("cluster", "dlq", "ls")))
					}
					told, more, began = 0, 0, time.Now()
				}
				tellFull(a, n.Full(), room)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		group.Wait()
	}
}

func refusedLine(t session.Tenant, workflow string, l *messages.DeadLetter) string {
	what := "a task"
	if l.Run != "" {
		what = "task " + string(l.Run)
	}
	if workflow != "" && workflow != "_" {
		what += " of " + workflow
	}
	if t != session.DefaultTenant {
		what += ", tenant " + string(t)
	}
	return fmt.Sprintf("refused     %s: %s", what, term.Line(l.Reason, 120))
}

// tellFull prints the streams, and the disk, whose capacity state differs from the
// state last printed, which room holds.
func tellFull(a *app.App, full []messages.StreamFill, room map[string]string) {
	now := map[string]bool{}
	for _, f := range full {
		now[f.Stream] = true
		if room[f.Stream] != f.Room {
			room[f.Stream] = f.Room
			a.Err.Println(fmt.Sprintf("store       %s: %s", f.Stream, term.Line(view.CapacityText(f), 200)))
		}
	}
	for _, stream := range slices.Sorted(maps.Keys(room)) {
		if !now[stream] {
			delete(room, stream)
			a.Err.Println(fmt.Sprintf("store       %s: has room again", stream))
		}
	}
}
