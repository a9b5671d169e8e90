package dispatch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// PoolWaiting is how many runs wait for a slot of a pool.
type PoolWaiting struct {
	Pool  string `json:"pool"`
	Class string `json:"class"`
	Runs  int    `json:"runs"`
}

// subjectWaiting is the subject on which relays answer with their waiting runs.
const subjectWaiting = messages.NodePrefix + "waiting"

const (
	// waitingTimeout bounds how long the relays may take to answer; after waitingAgain they
	// are asked again.
	waitingTimeout = 5 * time.Second
	waitingAgain   = 500 * time.Millisecond
)

// partitionWaiting is one relay's answer.
type partitionWaiting struct {
	Generation uint32        `json:"generation"`
	Partition  uint32        `json:"partition"`
	Pools      []PoolWaiting `json:"pools,omitempty"`
}

// Waiting returns the number of runs that wait in logs for a slot of each pool, by class,
// for autoscalers. It does not count tasks that no log holds yet. It fails while a
// partition has no relay, which takes a few seconds at most.
func (c *Dispatch) Waiting(ctx context.Context) ([]PoolWaiting, error) {
	ctx, cancel := context.WithTimeout(ctx, waitingTimeout)
	defer cancel()
	inbox := c.conn.NC.NewRespInbox()
	sub, err := c.conn.NC.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("nats/dispatch: waiting runs: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection has ended
	sum := map[PoolWaiting]int{}
	seen := map[uint32]bool{}
	for len(seen) < int(c.streams.Partitions()) {
		// A relay that takes over a partition does not receive earlier requests.
		if err := c.conn.NC.PublishRequest(subjectWaiting, inbox, nil); err != nil {
			return nil, fmt.Errorf("nats/dispatch: waiting runs: %w", err)
		}
		again, cancel := context.WithTimeout(ctx, waitingAgain)
		err := c.gatherWaiting(again, sub, seen, sum)
		cancel()
		if err != nil && ctx.Err() != nil {
			return nil, fmt.Errorf("nats/dispatch: waiting runs: %d of %d partitions answered: %w", len(seen), c.streams.Partitions(), err)
		}
	}
	out := make([]PoolWaiting, 0, len(sum))
	for w, n := range sum {
		w.Runs = n
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b PoolWaiting) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(b.Class, a.Class))
	})
	return out, nil
}

// gatherWaiting collects the answers of relays until each partition has answered.
func (c *Dispatch) gatherWaiting(ctx context.Context, sub *nats.Subscription, seen map[uint32]bool, sum map[PoolWaiting]int) error {
	for len(seen) < int(c.streams.Partitions()) {
		m, err := sub.NextMsgWithContext(ctx)
		if errors.Is(err, nats.ErrNoResponders) {
			<-ctx.Done() // the same at once
			return fmt.Errorf("%w: no relay reports waiting runs; start a node", conn.ErrNoAnswer)
		}
		if err != nil {
			return err
		}
		var p partitionWaiting
		if json.Unmarshal(m.Data, &p) != nil || p.Generation != c.streams.Generation() || seen[p.Partition] {
			continue
		}
		seen[p.Partition] = true
		for _, w := range p.Pools {
			sum[PoolWaiting{Pool: w.Pool, Class: w.Class}] += w.Runs
		}
	}
	return nil
}

// serve answers requests for credit, for waiting runs and for open sessions, until it is
// stopped. Requests without an answer by then get an empty one: the next relay is asked.
func (d *dispatcher) serve(ctx context.Context) (stop func(), err error) {
	d.lent = lent{}
	ctx, cancel := context.WithCancel(ctx)
	service := d.c.conn.NewService(ctx)
	var subs []*nats.Subscription
	service.Close = func() error {
		var errs []error
		for _, s := range subs {
			errs = append(errs, s.Unsubscribe())
		}
		return errors.Join(errs...)
	}
	stop = func() {
		cancel() // requests that wait for the pump are abandoned
		_ = service.Stop()
	}
	answer := func(subject string, ask func(data []byte) any) error {
		sub, err := d.c.conn.NC.Subscribe(subject, func(m *nats.Msg) {
			service.Go(conn.RequestOf(m), func(ctx context.Context) {
				v := make(chan any, 1)
				select {
				case d.requests <- func() { v <- ask(m.Data) }:
				case <-ctx.Done():
					_ = m.Respond(nil) // fails with the connection
					return
				}
				data, err := json.Marshal(<-v)
				if err == nil {
					_ = m.Respond(data) // fails with the connection
				}
			}, func(error) {}) // silence is an answer: not now
		})
		if err == nil {
			subs = append(subs, sub)
		}
		return err
	}
	err = errors.Join(answer(creditSubject(d.generation, d.partition), func(data []byte) any {
		var c credit
		if json.Unmarshal(data, &c) != nil {
			return creditAnswer{}
		}
		return d.lend(time.Now(), c)
	}), answer(subjectWaiting, func([]byte) any { return d.waiting() }),
		answer(openSubject(d.generation, d.partition), func(data []byte) any {
			var q openOf
			if json.Unmarshal(data, &q) != nil {
				return openAnswer{}
			}
			return d.openSessions(q.Tenant)
		}),
		answer(standingSubject(d.generation, d.partition), func(data []byte) any {
			var q standingOf
			if json.Unmarshal(data, &q) != nil {
				return schedule.Standing{}
			}
			return d.s.Standing(time.Now(), session.Key{Tenant: q.Tenant, ID: q.Session}, q.Run)
		}))
	if err != nil {
		stop()
		return nil, fmt.Errorf("nats/dispatch: answer for a partition: %w", err)
	}
	return stop, nil
}

func (d *dispatcher) waiting() partitionWaiting {
	w := partitionWaiting{Generation: d.generation, Partition: d.partition}
	d.s.Slots.Waiting(func(pool string, batch bool, n int, _ map[session.Tenant]int) bool {
		class := messages.ClassInteractive
		if batch {
			class = messages.ClassBatch
		}
		w.Pools = append(w.Pools, PoolWaiting{pool, class, n})
		return true
	})
	return w
}
