package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/conn"
)

// Servers that restart before they have caught up with each other, or that take the stored
// state of a consumer for a leftover, can leave behind a stream or a consumer that their
// cluster lists and no server ever leads again. The servers do not repair it. A Reconciler
// removes such a stream or consumer and creates it again if the logs hold its contents: the
// consumer of a work queue, which begins again with the whole stream, and the streams in
// memory, whose contents relays and nodes publish again. A duplicate message is harmless.

// ElectionMost is the maximum time for a stream to elect a leader once its servers can. If
// they could not before, all streams elect at about the same time.
const ElectionMost = 10 * time.Second

// askStream bounds a request for the state of a stream.
const askStream = 5 * time.Second

// provisionFor bounds one request that creates or changes a stream or consumer: servers
// choose a leader for it.
const provisionFor = 15 * time.Second

// Reconciler finds streams and queues through elections, and recreates those that no server
// serves. It is safe for concurrent use.
type Reconciler struct {
	conn     *conn.Conn
	messages *conn.Messages
	o        *Options
}

// Lookup is an election, and whether the stream or consumer in question is lost. It is not
// safe for concurrent use.
type Lookup struct {
	conn.Election
	conn uint64 // the connection, if the Lookup is kept from one search to the next
	// led is the time since which the witness has had a leader while no server answered for
	// the stream or consumer. lost reports whether that is long enough, see search.
	led  time.Time
	lost bool
}

// layout returns the table of streams in the form that the connected server supports.
func (r *Reconciler) layout(o *Options) []jetstream.StreamConfig {
	all := layout(o)
	if !ordersBatches(r.conn.NC.ConnectedServerVersion()) {
		for i := range all {
			all[i].AllowBatchPublish = false
		}
	}
	return all
}

// LookStream returns the state of a stream, nil if it does not exist. A stream without a
// leader is an error.
func (r *Reconciler) LookStream(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	s, err := conn.CallWithin(ctx, r.conn, conn.APIStreamInfo+name, askStream, func(ctx context.Context) (jetstream.Stream, error) {
		return r.conn.JS.Stream(ctx, name)
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info := s.CachedInfo()
	if info.Cluster != nil && info.Cluster.Leader == "" {
		return nil, conn.ErrLeaderless
	}
	return info, nil
}

// search calls look with conn.RetryElection, and reports whether its object is lost. The
// object is lost when the budget is used up and, for the longest duration of an election,
// the leader of the witness has answered and no server has for the object. While the
// witness has no leader either, search continues for one more budget. Without a witness,
// "", nothing is lost.
func search[T any](ctx context.Context, r *Reconciler, e *Lookup, what, witness string, look func(context.Context) (T, error)) (v T, lost bool, err error) {
	if e.What != what {
		e.What, e.led = what, time.Time{}
	}
	if witness == "" {
		v, err = conn.RetryElection(ctx, &e.Election, look)
		return v, false, err
	}
	watch := func(ctx context.Context) (T, error) {
		v, err := look(ctx)
		e.compare(ctx, r, witness, conn.IsLeaderless(err))
		return v, err
	}
	if v, err = conn.RetryElection(ctx, &e.Election, watch); conn.IsLeaderless(err) && ctx.Err() == nil {
		v, err = conn.RetryWhile(ctx, &conn.Election{}, func(err error) bool { return conn.IsLeaderless(err) && !e.lost }, watch)
	}
	switch {
	case ctx.Err() != nil:
		return v, false, err
	case conn.IsLeaderless(err):
		return v, e.lost, err
	case e.conn != 0:
		*e = Lookup{} // a later search starts anew
	}
	return v, false, err
}

// compare records the result of a lookup: the object was absent or not.
func (e *Lookup) compare(ctx context.Context, r *Reconciler, witness string, absent bool) {
	e.lost = false
	led := absent && r.led(ctx, witness)
	switch {
	case ctx.Err() != nil: // too late to ask: no evidence
	case !led:
		e.led = time.Time{}
	case e.led.IsZero():
		e.led = time.Now()
	default:
		e.lost = time.Since(e.led) >= ElectionMost
	}
}

// resume continues an election from one search to the next: their total patience is that of
// one search. Over another connection other servers answer, so the election begins anew.
func (r *Reconciler) resume(e *Lookup) {
	if now := r.conn.Incarnation(); e.conn != now {
		*e = Lookup{Election: conn.Election{Log: r.conn.Logger}, conn: now}
	}
}

// led reports whether the leader of a stream answers.
func (r *Reconciler) led(ctx context.Context, stream string) bool {
	info, err := r.LookStream(ctx, stream)
	return err == nil && info != nil
}

// findStream is LookStream with conn.RetryElection. It also reports whether a stream that
// may be recreated is lost while the event streams are not.
func (r *Reconciler) findStream(ctx context.Context, e *Lookup, want jetstream.StreamConfig) (info *jetstream.StreamInfo, lost bool, err error) {
	witness := ""
	if replaceable(&want) {
		witness = EventStream(r.o.Generation, 0)
	}
	return search(ctx, r, e, "stream "+want.Name, witness, func(ctx context.Context) (*jetstream.StreamInfo, error) { return r.LookStream(ctx, want.Name) })
}

// findQueue is LookQueue with conn.RetryElection. It also reports whether the consumer is
// lost while its stream is not.
func (r *Reconciler) findQueue(ctx context.Context, e *Lookup, q PullQueue) (consumer jetstream.Consumer, lost bool, err error) {
	return search(ctx, r, e, "consumer "+q.Durable, q.Stream, func(ctx context.Context) (jetstream.Consumer, error) { return r.LookQueue(ctx, q) })
}

// unserved is why a lost stream or consumer is created again.
const unserved = "no server serves it"

// recreateQueue removes a faulty consumer and creates it again, unless another node has
// done so since made, the creation time of the faulty one in nanoseconds; made is zero for
// a consumer that did not answer.
func (r *Reconciler) recreateQueue(ctx context.Context, q PullQueue, made int64, why string) (jetstream.Consumer, error) {
	now, err := r.LookQueue(ctx, q)
	if err == nil && now != nil && now.CachedInfo().Created.UnixNano() != made {
		return now, nil
	}
	r.conn.Logger.Warn("a consumer is created again: "+why, "stream", q.Stream, "consumer", q.Durable)
	// The lookup below shows whether the consumer is removed: it has no leader to answer
	// the removal.
	if err := r.removeQueue(ctx, q); err != nil && !conn.IsTransient(err) {
		return nil, err
	}
	consumer, err := r.LookQueue(ctx, q)
	if err != nil || consumer != nil {
		return consumer, err
	}
	return r.putQueue(ctx, q)
}

// recreateStream removes and recreates a lost stream, unless another node has done so
// meanwhile.
func (r *Reconciler) recreateStream(ctx context.Context, want jetstream.StreamConfig) error {
	if info, err := r.LookStream(ctx, want.Name); err == nil && info != nil {
		return nil
	}
	r.conn.Logger.Warn("a stream is created again: "+unserved, "stream", want.Name)
	_, err := conn.CallWithin(ctx, r.conn, conn.APIStreamDelete+want.Name, askStream, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.conn.JS.DeleteStream(ctx, want.Name)
	})
	if err != nil && !conn.IsTransient(err) && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	// The lookup shows whether the stream is removed.
	if info, err := r.LookStream(ctx, want.Name); err != nil || info != nil {
		return err
	}
	return r.makeStream(ctx, want)
}

func (r *Reconciler) makeStream(ctx context.Context, want jetstream.StreamConfig) error {
	_, err := conn.CallWithin(ctx, r.conn, conn.APIStreamCreate+want.Name, provisionFor, func(ctx context.Context) (jetstream.Stream, error) {
		return r.conn.JS.CreateStream(ctx, want)
	})
	return err
}

// replaceable reports whether a lost stream may be recreated.
func replaceable(want *jetstream.StreamConfig) bool { return want.Storage == jetstream.MemoryStorage }

// ReconcileEvery is how often the streams in memory are checked.
const ReconcileEvery = 10 * time.Second

// ReconcileStreams monitors the streams in memory until ctx ends, each by itself.
func (r *Reconciler) ReconcileStreams(ctx context.Context) error {
	var each []func(context.Context) error
	for _, want := range r.layout(r.o) {
		if replaceable(&want) {
			each = append(each, func(ctx context.Context) error { return r.reconcileStream(ctx, want) })
		}
	}
	return conn.Together(ctx, each...)
}

// reconcileStream monitors one stream. It creates the stream if it is lost, or absent
// because the node that recreated it died meanwhile. A server without others loses it only
// with the connection: it is asked once for each.
func (r *Reconciler) reconcileStream(ctx context.Context, want jetstream.StreamConfig) error {
	tick := time.NewTicker(ReconcileEvery)
	defer tick.Stop()
	var e Lookup
	for tended := uint64(0); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		now := r.conn.Incarnation()
		if tended == now && r.conn.NC.ConnectedClusterName() == "" {
			continue
		}
		r.resume(&e)
		if err := r.ensureStream(ctx, &e, want); err == nil {
			tended, e = now, Lookup{}
		} else if tended = 0; ctx.Err() == nil {
			r.conn.Logger.Error("a stream in memory is not served, and cannot be created again; "+r.o.provision(), "stream", want.Name, "err", err)
		}
	}
}

// ensureStream makes sure that a stream in memory exists and has a leader.
func (r *Reconciler) ensureStream(ctx context.Context, e *Lookup, want jetstream.StreamConfig) error {
	info, lost, err := r.findStream(ctx, e, want)
	switch {
	case lost:
		return r.recreateStream(ctx, want)
	case err != nil:
		return fmt.Errorf("nats/streams: stream %s: %w", want.Name, err)
	case info == nil:
		return r.makeStream(ctx, want)
	}
	return nil
}

const (
	// staleTask is how long the consumer of tasks may appear to have skipped one: longer
	// than a task is handled, and longer than a rejected one is delayed.
	staleTask = HoldMost + WaitMost
	// staleEvery is how often the consumer is checked.
	staleEvery = 15 * time.Second
)

// ReconcileTasks repairs the queue of tasks until ctx ends. A consumer may lose track of
// its stream, or lose its leader for good. The stream and the logs imply its position, so
// ReconcileTasks recreates the consumer when it makes no progress while a task waits. Each
// task is then redelivered, which is harmless, but before all tasks submitted from then on.
func (r *Reconciler) ReconcileTasks(ctx context.Context) error {
	tick := time.NewTicker(staleEvery)
	defer tick.Stop()
	var sent, oldest uint64
	for well := time.Now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		// The consumer is read before the stream: by then the stream lacks every task that
		// it has acknowledged.
		consumer, err := r.LookQueue(ctx, TasksQueue())
		var at *jetstream.ConsumerInfo
		if err == nil && consumer != nil {
			at = consumer.CachedInfo()
		}
		first, err := r.messages.LeaderNext(ctx, StreamTasks, subjectTasks, 1)
		switch {
		case err != nil || first.Seq != oldest: // none waits, or the stream elects a leader; or the oldest was acknowledged
			well = time.Now()
		case at != nil && at.Delivered.Consumer != sent && at.AckFloor.Stream < first.Seq:
			well = time.Now() // it sends tasks, and the oldest is among them or will be
		}
		oldest = first.Seq
		made := int64(0)
		if at != nil {
			sent, made = at.Delivered.Consumer, at.Created.UnixNano()
		}
		if time.Since(well) < staleTask {
			continue
		}
		if _, err := r.recreateQueue(ctx, TasksQueue(), made, "it does nothing about a task that has waited for longer than one is handled"); err != nil {
			if ctx.Err() == nil {
				r.conn.Logger.Warn("the queue of tasks is not made again", "err", err)
			}
			continue
		}
		well = time.Now()
	}
}
