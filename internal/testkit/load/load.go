package load

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/requests"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

const (
	// lookEvery is the interval at which varying numbers are read, and lookFor the time limit
	// of a read.
	lookEvery = 100 * time.Millisecond
	lookFor   = 2 * time.Second
	// lookFirst is the time limit of the first read: nodes may just have started.
	lookFirst = 10 * time.Second
	// askAgain is the interval of queries for the result of a silent run: live messages may
	// be lost.
	askAgain = 5 * time.Second
	// claimWait bounds the wait for a claim that arrives after the result.
	claimWait = 5 * time.Second
)

// generator is one load.
type generator struct {
	o      Options
	c      *api.Conn
	prefix string // of the ids: no other load has it
	began  time.Time

	mu      sync.Mutex
	r       Report
	submit  []time.Duration
	claim   []time.Duration
	first   []time.Duration
	end     []time.Duration
	last    time.Time // when the last run ended
	errs    map[string]int
	waiting int64 // acknowledged and not begun
	backlog gauge
	lag     gauge
}

// Run runs a load over a connection, waits for its end and returns a report. An error means
// that there was no load; failures under load are in the report.
func Run(ctx context.Context, c *api.Conn, opts *Options) (*Report, error) {
	g := &generator{c: c, prefix: "bench-" + strings.ToLower(rand.Text()[:8]) + "-", errs: map[string]int{}}
	if opts != nil {
		g.o = *opts
	}
	if err := g.o.defaults(); err != nil {
		return nil, err
	}
	if _, err := g.task(0); err != nil {
		return nil, err
	}
	if g.o.Lag != nil {
		looking, cancel := context.WithTimeout(ctx, lookFirst)
		_, err := g.o.Lag(looking)
		cancel()
		if err != nil {
			g.r.LagError = err.Error()
			g.o.Lag = nil
		}
	}
	meter := NewMeter(g.o.Processes...)
	g.began = time.Now()
	looking, stop := context.WithCancel(ctx)
	var looks sync.WaitGroup
	looks.Go(func() { g.look(looking) })
	g.all(ctx)
	g.r.CPU = meter.Read()
	stop()
	looks.Wait()
	return g.report(ctx), nil
}

// all submits the tasks and waits for their results.
func (g *generator) all(ctx context.Context) {
	submitting, cancel := context.WithTimeout(ctx, g.o.Duration)
	defer cancel()
	waiting, give := context.WithCancel(ctx)
	defer give()
	slots := make(chan struct{}, g.o.InFlight)
	var runs sync.WaitGroup
	for i := range g.o.Tasks {
		if !g.due(submitting, i) {
			break
		}
		select {
		case slots <- struct{}{}:
		default:
			g.mu.Lock()
			g.r.HeldBack++
			g.mu.Unlock()
			select {
			case slots <- struct{}{}:
			case <-submitting.Done():
			}
		}
		if submitting.Err() != nil {
			break
		}
		runs.Go(func() {
			over := sync.OnceFunc(func() { <-slots })
			defer over()
			g.one(waiting, i, over)
		})
	}
	if submitting.Err() != nil && ctx.Err() == nil {
		g.r.Stopped = fmt.Sprintf("submitting stopped after %v", g.o.Duration)
	}
	t := time.AfterFunc(g.o.Settle, give)
	runs.Wait()
	t.Stop()
}

// due waits until the i-th task is to be submitted.
func (g *generator) due(ctx context.Context, i int) bool {
	if g.o.Rate == 0 {
		return ctx.Err() == nil
	}
	at := g.began.Add(time.Duration(float64(i) / g.o.Rate * float64(time.Second)))
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (g *generator) id(i int) run.ID { return run.ID(g.prefix + strconv.Itoa(i)) }

func (g *generator) task(i int) ([]byte, error) {
	t, err := g.o.Task(i)
	if err != nil {
		return nil, err
	}
	t.ID = g.id(i)
	return t.Encode()
}

// one submits a task and waits for its result. It calls over when the task is
// in flight no more, and may then still wait to hear when the run had begun.
func (g *generator) one(ctx context.Context, i int, over func()) {
	id := g.id(i)
	body, err := g.task(i)
	if err != nil {
		g.fail("make task", err)
		return
	}
	w, err := g.c.Requests.Watch(ctx, messages.RunSubject(g.o.Tenant, id, "*"))
	if err != nil {
		g.fail("watch", err)
		return
	}
	defer w.Close()
	start := time.Now()
	if _, err := g.c.Requests.Submit(ctx, g.o.Tenant, g.o.Workflow, string(id), body); err != nil {
		g.refused(err)
		return
	}
	g.acked(time.Since(start))
	began := false
	for {
		result, claimed, err := g.hear(ctx, w, id)
		switch {
		case err != nil:
			g.unfinished(began, err)
			return
		case !claimed.IsZero() && !began:
			began = true
			g.begun(claimed.Sub(start))
		case result != nil:
			g.ended(id, start, began, result)
			over()
			if !began && result.State == run.Succeeded {
				g.late(ctx, w, start)
			}
			return
		}
	}
}

// late waits for the claim of a run whose result arrived first: the two take different
// paths.
func (g *generator) late(ctx context.Context, w *requests.Watch, start time.Time) {
	ctx, cancel := context.WithTimeout(ctx, claimWait)
	defer cancel()
	for {
		live, err := w.Next(ctx)
		if err != nil {
			return // the report has the number of received claims
		}
		if at := claimedAt(live); !at.IsZero() {
			g.claimed(at.Sub(start))
			return
		}
	}
}

// claimedAt returns the time at which a run was claimed, by the clock of its node, or zero
// if the message is not a claim.
func claimedAt(live requests.Live) time.Time {
	if _, _, on, _ := messages.ParseRunSubject(live.Subject); on != messages.OnEvent {
		return time.Time{}
	}
	e, err := messages.DecodeEvent(live.Data)
	if err != nil || e.Kind != messages.KindClaimed {
		return time.Time{}
	}
	return e.When()
}

// hear waits for news of a run: when it was claimed, or its result.
func (g *generator) hear(ctx context.Context, w *requests.Watch, id run.ID) (r *messages.Result, claimed time.Time, err error) {
	patience, cancel := context.WithTimeout(ctx, askAgain)
	live, err := w.Next(patience)
	cancel()
	switch {
	case ctx.Err() != nil:
		return nil, claimed, ctx.Err()
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		return nil, claimed, err
	case err != nil, live.Gap:
		return g.ask(ctx, id), claimed, nil
	}
	if _, _, on, _ := messages.ParseRunSubject(live.Subject); on == messages.OnResult {
		if r, err := messages.DecodeResult(live.Data); err == nil {
			return &r, claimed, nil
		}
	}
	return nil, claimedAt(live), nil
}

// ask reads the stored result. It returns nil if there is none or no node answers; the
// caller asks again.
func (g *generator) ask(ctx context.Context, id run.ID) *messages.Result {
	ctx, cancel := context.WithTimeout(ctx, askAgain)
	defer cancel()
	data, err := g.c.Requests.Query(ctx, g.o.Tenant, messages.QueryResult, wire.Query{Run: id})
	if err != nil {
		return nil
	}
	r, err := messages.DecodeResult(data)
	if err != nil {
		return nil
	}
	return &r
}

// look samples the values that vary over time.
func (g *generator) look(ctx context.Context) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		var lag int64
		var err error
		if g.o.Lag != nil {
			asking, cancel := context.WithTimeout(ctx, lookFor)
			lag, err = g.o.Lag(asking)
			cancel()
		}
		g.mu.Lock()
		g.backlog.add(g.waiting)
		if g.o.Lag != nil && err == nil {
			g.lag.add(lag)
		}
		g.mu.Unlock()
	}
}

func (g *generator) acked(took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.r.Submitted++
	g.waiting++
	g.submit = append(g.submit, took)
}

func (g *generator) begun(took time.Duration) {
	g.claimed(took)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting--
}

// claimed records a task's wait for its claim. The log has milliseconds, and the clocks of
// two machines differ.
func (g *generator) claimed(took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.claim = append(g.claim, max(took, 0))
}

func (g *generator) ended(id run.ID, start time.Time, began bool, r *messages.Result) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = now
	if !began { // its event takes another path than the result and arrives later
		g.waiting--
	}
	switch {
	case r.State == run.Succeeded:
		g.r.Succeeded++
		g.end = append(g.end, now.Sub(start))
		if g.o.First != nil {
			if at, ok := g.o.First(id); ok {
				g.first = append(g.first, at.Sub(start))
			}
		}
	case r.Code == run.CodeBusy:
		g.r.Busy++
	default:
		g.r.Failed++
		g.note(fmt.Sprintf("%s: %s", r.State, r.Error))
	}
	if g.o.Ended != nil {
		g.o.Ended(id, *r)
	}
}

// refused counts a rejected task.
func (g *generator) refused(err error) {
	switch {
	case errors.Is(err, run.ErrBusy):
		g.mu.Lock()
		defer g.mu.Unlock()
		g.r.Busy++
	case errors.Is(err, context.Canceled):
		g.mu.Lock()
		defer g.mu.Unlock()
		g.r.Unfinished++
	default:
		g.fail("submit", err)
	}
}

// unfinished counts a run without a result.
func (g *generator) unfinished(began bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.r.Unfinished++
	if !began {
		g.waiting--
	}
	if !errors.Is(err, context.Canceled) {
		g.note(err.Error())
	}
}

func (g *generator) fail(what string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.r.Failed++
	g.note(what + ": " + err.Error())
}

// maxErrors bounds the different errors in a report.
const maxErrors = 10

// note counts an error by its text without the ids of this load. It is called
// with the lock held.
func (g *generator) note(text string) {
	var words []string
	for w := range strings.FieldsSeq(text) {
		if strings.Contains(w, g.prefix) {
			w = "…"
		}
		words = append(words, w)
	}
	text = strings.Join(words, " ")
	if _, known := g.errs[text]; !known && len(g.errs) >= maxErrors {
		text = "others"
	}
	g.errs[text]++
}
