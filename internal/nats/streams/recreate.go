package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/conn"
)

// Servers that restart before they have caught up with each other, or that take
// what they store of a consumer for left over, can leave a stream or a consumer
// behind that their cluster knows and no server ever leads again. They do not
// repair that. Here such a stream or consumer is removed and created again, if logs
// hold all that it held: the consumer of a work queue, which begins again with all
// that its stream holds, and the streams in memory, whose content relays and nodes
// publish again. A message that comes twice is harmless.

// ElectionMost is how long a stream takes at most to elect a leader once its
// servers can. When they could not, all streams do so at about the same time.
const ElectionMost = 10 * time.Second

// askStream bounds the question how a stream is.
const askStream = 5 * time.Second

// provisionFor bounds one request that makes or changes something: servers
// choose a leader for it.
const provisionFor = 15 * time.Second

// Reconciler finds streams and queues through elections, and creates again those that no
// server serves. It is safe for concurrent use.
type Reconciler struct {
	conn     *conn.Conn
	messages *conn.Messages
	o        *Options
}

// Lookup is an election, and whether what is looked for is lost. It is not safe for
// concurrent use.
type Lookup struct {
	conn.Election
	conn uint64 // the connection, if this is kept from one search to the next
	// led is since when the witness of what may be lost has had a leader while no
	// server answered for it, and lost whether that is long enough, see search.
	led  time.Time
	lost bool
}

// layout is the table of streams as the server that is connected can set them up.
func (r *Reconciler) layout(o *Options) []jetstream.StreamConfig {
	all := layout(o)
	if !ordersBatches(r.conn.NC.ConnectedServerVersion()) {
		for i := range all {
			all[i].AllowBatchPublish = false
		}
	}
	return all
}

// LookStream returns how a stream is, nil if it is not there. One that no server
// leads is an error.
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

// search looks for something with conn.RetryElection, and says whether it is lost: the
// budget is used up, and for as long as an election takes at most the leader of the witness
// has answered, and no server for it. While the witness has no leader either it goes
// on for one more budget. Without a witness, "", nothing is lost.
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
		*e = Lookup{} // what comes later is another one
	}
	return v, false, err
}

// compare takes in that something was looked for, and found to be absent or not.
func (e *Lookup) compare(ctx context.Context, r *Reconciler, witness string, absent bool) {
	e.lost = false
	led := absent && r.led(ctx, witness)
	switch {
	case ctx.Err() != nil: // too late to ask says nothing
	case !led:
		e.led = time.Time{}
	case e.led.IsZero():
		e.led = time.Now()
	default:
		e.lost = time.Since(e.led) >= ElectionMost
	}
}

// resume makes an election go on that is kept from one search to the next: in sum
// they are no more patient than one. Over another connection other servers answer.
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

// findStream is LookStream with conn.RetryElection, and says whether a stream that may be
// created again is lost though one of the truth is not.
func (r *Reconciler) findStream(ctx context.Context, e *Lookup, want jetstream.StreamConfig) (info *jetstream.StreamInfo, lost bool, err error) {
	witness := ""
	if replaceable(&want) {
		witness = EventStream(r.o.Generation, 0)
	}
	return search(ctx, r, e, "stream "+want.Name, witness, func(ctx context.Context) (*jetstream.StreamInfo, error) { return r.LookStream(ctx, want.Name) })
}

// findQueue is LookQueue with conn.RetryElection, and says whether the consumer is lost
// though its stream is not.
func (r *Reconciler) findQueue(ctx context.Context, e *Lookup, q PullQueue) (consumer jetstream.Consumer, lost bool, err error) {
	return search(ctx, r, e, "consumer "+q.Durable, q.Stream, func(ctx context.Context) (jetstream.Consumer, error) { return r.LookQueue(ctx, q) })
}

// unserved is why a lost stream or consumer is created again.
const unserved = "no server serves it"

// recreateQueue removes a consumer that does not give what it should, and makes it
// again, unless another node did since it was made: in nanoseconds, zero for one
// that did not answer.
func (r *Reconciler) recreateQueue(ctx context.Context, q PullQueue, made int64, why string) (jetstream.Consumer, error) {
	now, err := r.LookQueue(ctx, q)
	if err == nil && now != nil && now.CachedInfo().Created.UnixNano() != made {
		return now, nil
	}
	r.conn.Logger.Warn("a consumer is created again: "+why, "stream", q.Stream, "consumer", q.Durable)
	// Whether it is gone its absence tells: who would answer is what it lacks.
	if err := r.removeQueue(ctx, q); err != nil && !conn.IsTransient(err) {
		return nil, err
	}
	consumer, err := r.LookQueue(ctx, q)
	if err != nil || consumer != nil {
		return consumer, err
	}
	return r.putQueue(ctx, q)
}

// recreateStream removes a lost stream and makes it again, unless another node did
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
	// Whether it is gone its absence tells.
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

// replaceable reports whether a stream may be created again when it is lost.
func replaceable(want *jetstream.StreamConfig) bool { return want.Storage == jetstream.MemoryStorage }

// ReconcileEvery is how often the streams in memory are looked after.
const ReconcileEvery = 10 * time.Second

// ReconcileStreams looks after the streams in memory until ctx ends, after each by itself.
func (r *Reconciler) ReconcileStreams(ctx context.Context) error {
	var each []func(context.Context) error
	for _, want := range r.layout(r.o) {
		if replaceable(&want) {
			each = append(each, func(ctx context.Context) error { return r.reconcileStream(ctx, want) })
		}
	}
	return conn.Together(ctx, each...)
}

// reconcileStream looks after one: if it is lost, or gone because the node that created
// it again died meanwhile, it is created. A server without others loses it only with the
// connection: it is asked once for each.
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

// ensureStream sees to it that a stream in memory is there, and led.
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
	// staleTask is for how long the consumer of tasks may look as if it passed one over:
	// longer than one is handled, and than it is given back for.
	staleTask = HoldMost + WaitMost
	// staleEvery is how often it is looked at.
	staleEvery = 15 * time.Second
)

// ReconcileTasks looks after the queue of tasks until ctx ends. A consumer may lose
// count of its stream, or be led by no server any more. Its position says nothing
// that the stream and the logs do not say, so it is made again when it does nothing
// about a task that waits: each task then comes once more, which is harmless, but
// before all that are submitted from then on.
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
		// Asked before the stream is: what the consumer has done with by then is gone.
		consumer, err := r.LookQueue(ctx, TasksQueue())
		var at *jetstream.ConsumerInfo
		if err == nil && consumer != nil {
			at = consumer.CachedInfo()
		}
		first, err := r.messages.LeaderNext(ctx, StreamTasks, subjectTasks, 1)
		switch {
		case err != nil || first.Seq != oldest: // none waits, or the stream elects a leader; or the oldest was taken
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
