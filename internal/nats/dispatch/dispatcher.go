package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/protection"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/internal/platform/workers"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// signalTimeout bounds one attempt to apply a signal, dispatchTimeout one to
	// dispatch a run: the scheduler gives a run to another node long before.
	signalTimeout   = 30 * time.Second
	dispatchTimeout = 12 * time.Second
	// resultTimeout bounds the storing of one result.
	resultTimeout = 30 * time.Second
	// lookTimeout bounds the reads for the scheduler.
	lookTimeout = 10 * time.Second
	// outcomesAhead bounds the outcomes that wait for the pump. Beyond it the workers
	// block, and with them the next actions.
	outcomesAhead = 256
)

// dispatcher drives a partition's scheduler: it feeds the scheduler the commits of the
// event stream and the reports of nodes, carries out its actions, and saves its open set.
// Its pump blocks only on its inputs.
type dispatcher struct {
	c                     *Dispatch
	o                     RelayOptions
	generation, partition uint32
	stream                string
	recheck               <-chan struct{} // the set of living nodes may have changed

	s         *schedule.Scheduler
	at        commitlog.Position // of the last folded commit; Seq is not used
	set       openSet            // as it is stored
	gathered  map[int][]byte     // the pages of its next root; nil while none are gathered
	pace      *eventlog.Pacer
	outcomes  chan outcome // of actions
	reports   chan nodeReport
	requests  chan func() // requests of others to the pump
	lent      lent
	actions   *workers.Pool                  // carries actions out
	work      sync.WaitGroup                 // the rest that it began
	lastState atomic.Pointer[PartitionState] // the last answer to Relaying
}

type outcome struct {
	id uint64
	schedule.Outcome
}

// run pumps until ctx ends.
func (d *dispatcher) run(ctx context.Context) error {
	d.pace = eventlog.NewPacer()
	defer d.pace.Stop()
	if err := d.load(ctx); err != nil {
		return err
	}
	end, err := d.c.messages.LastSequence(ctx, d.stream)
	if err != nil {
		return err
	}
	if !protection.OpenSetTail {
		d.at.Token = end
	}
	unsubscribe, err := d.listen()
	if err != nil {
		return err
	}
	defer unsubscribe()
	stop, err := d.serve(ctx)
	if err != nil {
		return err
	}
	in := make(chan conn.Message, conn.FollowAhead)
	return conn.Following(ctx, func(ctx context.Context) error {
		return d.c.messages.Follow(ctx, d.stream, ">", d.at.Token+1, in)
	}, func(ctx context.Context) error { return d.pump(ctx, in, end, stop) })
}

func (d *dispatcher) options() *schedule.Options {
	return &schedule.Options{Self: d.o.Incarnation, Known: d.o.Known}
}

// pump processes the commits. Commits up to end are history: their outstanding actions are
// carried out once all of the history is read. pump calls stop when it answers no more
// questions.
func (d *dispatcher) pump(ctx context.Context, in <-chan conn.Message, end uint64, stop func()) error {
	h := eventlog.NewChain(d.c.logs, d.generation, d.partition)
	d.outcomes, d.actions = make(chan outcome, outcomesAhead), workers.New()
	ctx, cancel := context.WithCancel(ctx)
	saves := make(chan saved, 1)
	saving := false
	defer func() {
		cancel()
		stop()
		d.finish(ctx, saving, saves)
	}()
	wake := time.NewTimer(conn.HistoryCheck)
	defer wake.Stop()
	goOn := make(chan struct{}) // to gather the next pages
	close(goOn)
	history := true
	var requests chan func() // answered once all is known
	known := func() {
		history, requests = false, d.requests
		d.s.Begin(time.Now())
		d.work.Go(func() { d.c.rollCall(ctx) })
	}
	if d.at.Token >= end {
		known()
	}
	for {
		if !history {
			d.carryOut(ctx, d.s.Next(time.Now()))
			next := time.Hour
			if at := d.s.Wake(); !at.IsZero() {
				next = min(max(time.Until(at), 0), next)
			}
			wake.Reset(next)
		}
		var gathering <-chan struct{}
		if d.gathered != nil {
			d.gather(ctx, saves)
		}
		if d.gathered != nil {
			gathering = goOn
		}
		select {
		case m := <-in:
			if err := d.take(ctx, h, m); err != nil {
				return err
			}
			if history && m.Seq >= end {
				known()
			}
		case o := <-d.outcomes:
			d.s.Done(time.Now(), o.id, o.Outcome)
			if d.s.Pages.Dirty() {
				d.pace.Changed()
			}
		case n := <-d.reports:
			d.hear(n)
		case do := <-requests:
			do()
		case <-wake.C:
			if !history {
				continue
			}
			// The rest of the history may have been purged.
			if more, err := d.c.messages.Holds(ctx, d.stream, d.at.Token+1, end); err == nil && !more {
				known()
			} else {
				wake.Reset(conn.HistoryCheck)
			}
		case <-h.Rest.C:
			h.Forget()
		case <-d.recheck:
			d.s.Recheck(time.Now())
		case <-d.pace.Timer.C:
			if saving {
				d.pace.Changed() // again when this one is stored
				continue
			}
			saving, d.gathered = true, map[int][]byte{}
		case <-gathering:
		case r := <-saves:
			saving = false
			if err := d.hasSaved(ctx, r); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// finish waits for the actions in progress, and saves the open set once more.
func (d *dispatcher) finish(ctx context.Context, saving bool, saves chan saved) {
	ended := make(chan struct{})
	go func() {
		d.actions.End()
		d.work.Wait()
		close(ended)
	}()
	for open := true; open; {
		select {
		case o := <-d.outcomes:
			d.s.Done(time.Now(), o.id, o.Outcome)
		case <-ended:
			open = false
		}
	}
	if saving && d.gathered == nil && d.hasSaved(ctx, <-saves) != nil {
		return
	}
	if d.gathered == nil && d.pace.Dirty() {
		d.gathered = map[int][]byte{}
	}
	if d.gathered != nil {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventlog.CheckpointLast)
		defer cancel()
		for d.gathered != nil {
			d.gather(last, saves)
		}
		<-saves
	}
}

// take folds a message of the event stream.
func (d *dispatcher) take(ctx context.Context, h *eventlog.Chain, m conn.Message) error {
	e, ok, err := h.PatientlyNext(ctx, m)
	if err != nil && !errors.Is(err, session.ErrTooOld) {
		return err
	}
	if err != nil {
		d.c.conn.Logger.Error("a session was written by a later release; its follow-ups are skipped here", "stream", d.stream, "seq", m.Seq, "err", err)
	}
	concerns := ok && concernsRuns(e.Commit)
	if concerns {
		// Fill first, then fold: the open set may be saved at once after that.
		if err := d.fill(ctx, h, &e); err != nil {
			return err
		}
	}
	d.at = commitlog.Position{Token: m.Seq, Hash: commitlog.HashOf(m.Data)}
	d.pace.Changed()
	if !concerns {
		return nil
	}
	facts := h.Facts(e)
	d.returned(e.Commit.Tenant, facts)
	if err := d.s.Fold(time.Now(), e, facts); err != nil {
		d.c.conn.Logger.Error("the follow-ups of a commit cannot be read", "stream", d.stream, "seq", m.Seq, "err", err)
	}
	return nil
}

// concernsRuns reports whether a commit has an event of a run or of a writer.
// Most commits have steps and content only.
func concernsRuns(c commitlog.Commit) bool {
	for i := range c.Events {
		switch c.Events[i].Kind {
		case journal.KindStepCompleted, journal.KindStepStarted, journal.KindLate, session.KindChunk, session.KindPlaced, session.KindJoined:
		default:
			return true
		}
	}
	return false
}

// fill loads spilled data of run events, see Chain.FillThere; it skips other events.
func (d *dispatcher) fill(ctx context.Context, h *eventlog.Chain, e *commitlog.Entry) error {
	spilled := false
	for i := range e.Commit.Events {
		ev := &e.Commit.Events[i]
		if !ev.Blob.Digest.IsZero() && ev.Data == "" && !strings.HasPrefix(ev.Kind, "run.") && !journal.KeyLogEvent(ev.Kind) {
			ev.Data = "{}" // not needed
			continue
		}
		spilled = spilled || !ev.Blob.Digest.IsZero() && ev.Data == ""
	}
	if !spilled {
		return nil
	}
	return h.FillThere(ctx, e)
}

// carryOut begins actions. Their number is bounded by the scheduler.
func (d *dispatcher) carryOut(ctx context.Context, actions []schedule.Action) {
	for _, a := range actions {
		if a.Kind == schedule.Announce {
			d.c.tellDemand(a.Node, d.generation, d.partition, a.Grant, a.Demand)
			continue
		}
		d.actions.Run(func() {
			o := d.act(ctx, a)
			d.outcomes <- outcome{a.ID, o}
		})
	}
}

func (d *dispatcher) act(ctx context.Context, a schedule.Action) schedule.Outcome {
	timeout := lookTimeout
	switch a.Kind {
	case schedule.Dispatch:
		timeout = dispatchTimeout
	case schedule.Signal, schedule.Submit:
		timeout = signalTimeout
	case schedule.Store:
		// It does not end with the relay, but soon after.
		done := ctx
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(done, func() { time.AfterFunc(eventlog.CheckpointLast, cancel) })()
		timeout = resultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch a.Kind {
	case schedule.Dispatch:
		return d.c.dispatch(ctx, a.Node, dispatched{
			work: a.Work, generation: d.generation, partition: d.partition, grant: a.Grant, demand: a.Demand,
		})
	case schedule.Signal:
		return d.signal(ctx, *a.Work.Signal)
	case schedule.Store:
		if err := d.c.projections.PutResult(ctx, a.Tenant, *a.Result, a.Before); err != nil {
			d.c.conn.Logger.Error("a result was not stored and will be; queries read it from the log", "run", string(a.Result.Run), "err", err)
			return schedule.Outcome{}
		}
		return schedule.Outcome{Result: schedule.Settled}
	case schedule.Submit:
		return d.submit(ctx, *a.Work.Submit)
	case schedule.Look:
		return d.look(ctx, a.Session)
	case schedule.Load:
		return d.commit(ctx, a.Token)
	case schedule.Ping:
		return schedule.Outcome{Result: schedule.Settled, Found: d.c.Delivery.Ping(ctx, a.Node)}
	case schedule.Place:
		pools, err := d.o.Pools(ctx, a.Tenant, a.Workflow, a.Revision)
		if err != nil {
			d.c.conn.Logger.Debug("which pools offer a workflow is not known and will be asked again", "workflow", a.Workflow, "err", err)
			return schedule.Outcome{}
		}
		return schedule.Outcome{Result: schedule.Settled, Pools: pools}
	}
	return schedule.Outcome{}
}

// signal applies a signal to its session, wherever the session is held.
func (d *dispatcher) signal(ctx context.Context, s journal.Signal) schedule.Outcome {
	if d.o.Signal == nil {
		return schedule.Outcome{}
	}
	err := d.o.Signal(ctx, s)
	if s.Awaited != nil && messages.Refusal(err) {
		return d.answerInstead(ctx, s)
	}
	archived := s.ForKey() && errors.Is(err, session.ErrArchived) // until the log of the key is gone
	if err == nil || messages.Refusal(err) && !errors.Is(err, run.ErrNotSupported) && !archived {
		return schedule.Outcome{Result: schedule.Settled}
	}
	d.c.conn.Logger.Debug("a signal was not applied and will be sent again", "session", s.To.String(), "run", string(s.Run), "err", err)
	return schedule.Outcome{}
}

// submit submits the task of a run that another one starts. A repetition has the same body.
// A task that cannot be submitted is rejected.
func (d *dispatcher) submit(ctx context.Context, t journal.Task) schedule.Outcome {
	task := translate.TaskOf(t)
	task.StartedBy = t.StartedBy
	task.After, task.AfterAny = journal.NamePredecessors(t.After)
	err := d.c.Submit(ctx, t.Session.Tenant, messages.Submitter{By: t.By, Via: t.Via}.Token(), t.Workflow, &task)
	if err == nil {
		return schedule.Outcome{Result: schedule.Settled}
	}
	if messages.Refusal(err) {
		return d.signal(ctx, *t.Rejected(rejection(t.ID, err)))
	}
	d.c.conn.Logger.Debug("a started run was not submitted and will be", "run", string(t.ID), "err", err)
	return schedule.Outcome{}
}

// look reports whether a session has a log.
func (d *dispatcher) look(ctx context.Context, k session.Key) schedule.Outcome {
	stream, subject, err := eventlog.EventSubject(k)
	if err != nil {
		return schedule.Outcome{}
	}
	_, err = d.c.messages.Last(ctx, stream, subject)
	if err != nil && !errors.Is(err, conn.ErrNoMessage) {
		return schedule.Outcome{}
	}
	return schedule.Outcome{Result: schedule.Settled, Found: err == nil}
}

// commit reads a commit of the stream again.
func (d *dispatcher) commit(ctx context.Context, token uint64) schedule.Outcome {
	m, err := d.c.messages.At(ctx, d.stream, token)
	if errors.Is(err, conn.ErrNoMessage) {
		return schedule.Outcome{Result: schedule.Settled} // archived
	}
	var c commitlog.Commit
	if err == nil {
		c, err = commitlog.Decode(m.Data)
	}
	if err == nil {
		err = d.c.logs.Fill(ctx, &c)
	}
	if err != nil {
		d.c.conn.Logger.Warn("a commit with open follow-ups cannot be read and is tried again", "stream", d.stream, "seq", token, "err", err)
		return schedule.Outcome{}
	}
	e := commitlog.Entry{Commit: c, At: commitlog.Position{Seq: c.Seq, Token: token, Hash: commitlog.HashOf(m.Data)}}
	return schedule.Outcome{Result: schedule.Settled, Entry: &e}
}

// listen subscribes to the reports of nodes.
func (d *dispatcher) listen() (unsubscribe func(), err error) {
	d.reports = make(chan nodeReport, reportsAhead)
	hear := func(n nodeReport) {
		select {
		case d.reports <- n:
		default: // it is sent again
		}
	}
	slots, err := d.c.conn.NC.Subscribe(subjectSlots, func(m *nats.Msg) {
		var st schedule.NodeState
		if json.Unmarshal(m.Data, &st) == nil && st.Incarnation != "" {
			hear(nodeReport{state: st})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("nats/dispatch: hear nodes: %w", err)
	}
	grants, err := d.c.conn.NC.Subscribe(grantSubject(d.generation, d.partition), func(m *nats.Msg) {
		var g wireGrant
		if json.Unmarshal(m.Data, &g) == nil && g.Incarnation != "" && g.Grant != 0 {
			hear(nodeReport{state: g.NodeState, grant: g.Grant, head: g.Head})
		}
	})
	if err != nil {
		_ = slots.Unsubscribe()
		return nil, fmt.Errorf("nats/dispatch: hear nodes: %w", err)
	}
	return func() { // fails only when the connection has ended
		_, _ = slots.Unsubscribe(), grants.Unsubscribe()
	}, nil
}

// hear passes a node's report to the scheduler.
func (d *dispatcher) hear(n nodeReport) {
	if n.grant != 0 {
		d.s.Slots.Grant(time.Now(), n.state, n.grant, n.head)
		return
	}
	d.s.Slots.Node(time.Now(), n.state)
}
