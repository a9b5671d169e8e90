//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/testkit/fleet"
)

// clients submit tasks and ask questions as users of a fleet do, with
// and without an answer, and write down the answers.
type clients struct {
	nc      *nats.Conn
	began   time.Time
	witness string // file of the witnessing tools

	mu       sync.Mutex
	random   *rand.Rand
	log      *os.File
	heard    *os.File // the messages to clients, for the audit
	next     int
	kinds    deck // of the tasks
	fates    deck // of those with sessions of their own
	ends     deck // the actions on ids of ended runs
	tasks    map[string]*task
	order    []string // of the tasks
	arrived  map[string]chan struct{}
	heads    []head
	rows     map[string]map[int]string // of each session: the row seen at each index
	length   map[string]int            // of each session, as last seen
	asked    int                       // questions that were answered
	patient  bool                      // results are waited for, not asked for
	tallies  map[string]*tally
	begun    map[string]bool // runs that are in a log
	over     map[string]bool // runs whose end an event reported
	used     map[string]bool // named sessions on which a run is known to have begun
	resolved map[string]bool // calls with an operator's decision
	events   int             // that were heard
	deeds    map[string]int  // the acknowledged deeds
	words    []*word
	broken   []string // the violations
}

// head is an answer with the newest version of a session or, in an unsolicited message, a
// lower bound of it.
type head struct {
	Session string        `json:"session"`
	Start   time.Duration `json:"start_ns"`
	End     time.Duration `json:"end_ns"`
	Version int           `json:"version"`
	Asked   bool          `json:"asked"`
}

func newClients(f *fleet.Fleet, seed uint64, steady bool, history, told, witness string) (*clients, error) {
	l := &clients{
		began: time.Now(), witness: witness, random: rand.New(rand.NewPCG(seed, 2)),
		tasks: map[string]*task{}, arrived: map[string]chan struct{}{}, tallies: map[string]*tally{}, deeds: map[string]int{},
		begun: map[string]bool{}, over: map[string]bool{}, used: map[string]bool{}, resolved: map[string]bool{},
		rows: map[string]map[int]string{}, length: map[string]int{},
	}
	l.kinds, l.fates, l.ends = newDecks()
	ping := time.Second // soon enough to leave a server that is frozen or cut off
	if steady {
		ping = 10 * time.Second
	}
	var err error
	if l.log, err = os.Create(history); err != nil {
		return nil, err
	}
	if l.heard, err = os.Create(told); err != nil {
		return nil, errors.Join(err, l.log.Close())
	}
	l.nc, err = nats.Connect(f.URLs(0), nats.Name("load"), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.PingInterval(ping), nats.MaxPingsOutstanding(2), nats.RetryOnFailedConnect(true), nats.Timeout(2*ping),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err == nil {
		_, err = l.nc.Subscribe("rath.run.default.*.result", func(m *nats.Msg) { l.told(m.Data) })
	}
	if err == nil {
		_, err = l.nc.Subscribe("rath.run.default.*.event", l.hear)
	}
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *clients) close() error {
	if l.nc != nil {
		l.nc.Close()
	}
	return errors.Join(l.log.Close(), l.heard.Close())
}

// tell records a message to a client, for the audit. It is called with the lock held.
func (l *clients) tell(t audit.Told) {
	t.Time = time.Now()
	data, _ := json.Marshal(t)
	_, _ = l.heard.Write(append(data, '\n'))
}

// write adds a line to the history.
func (l *clients) write(op string, start time.Time, v any, err error) {
	line := map[string]any{"op": op, "start_ns": start.Sub(l.began), "end_ns": time.Since(l.began), "of": v}
	if err != nil {
		line["error"] = err.Error()
	}
	data, _ := json.Marshal(line)
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.log.Write(append(data, '\n'))
}

func (l *clients) wrong(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = append(l.broken, fmt.Sprintf(format, args...))
}

// follows reports whether a result equals an earlier one, or differs only in its spending,
// because it counts branches that were settled later.
func follows(now, before string) bool {
	type spending struct {
		settled, usage json.RawMessage
	}
	split := func(text string) (rest map[string]json.RawMessage, s spending, n int) {
		if json.Unmarshal([]byte(text), &rest) != nil {
			return nil, s, -1
		}
		s = spending{rest["settled"], rest["usage"]}
		delete(rest, "settled")
		delete(rest, "usage")
		_ = json.Unmarshal(s.settled, &n) // absent is zero
		return rest, s, n
	}
	a, spentNow, settledNow := split(now)
	b, spentBefore, settledBefore := split(before)
	same := maps.EqualFunc(a, b, func(a, b json.RawMessage) bool { return string(a) == string(b) })
	return a != nil && same && (settledNow > settledBefore || settledNow == settledBefore && string(spentNow.usage) == string(spentBefore.usage))
}

// told records a result. All results of one run must be the same, except for the spending
// of branches that are settled later.
func (l *clients) told(data []byte) {
	var r taskResult
	if err := json.Unmarshal(data, &r); err != nil || r.Run == "" {
		l.wrong("a result that cannot be read: %v: %s", err, data)
		return
	}
	text := string(data)
	l.mu.Lock()
	t := l.tasks[r.Run]
	if t == nil { // of a branch that the system runs
		t = &task{ID: r.Run}
		l.tasks[r.Run], l.arrived[r.Run] = t, make(chan struct{})
	}
	switch {
	case t.Result == "":
		t.Result, t.outcome = text, r
		if l.begun[r.Run] = true; r.Chain != nil {
			l.begins(r.Run)
		} // else it was cancelled before its session was made
		close(l.arrived[r.Run])
		told := audit.Told{Op: "result", Run: r.Run, State: r.State}
		if r.Chain != nil {
			told.Session, told.Seq, told.Hash = r.Chain.Session, r.Chain.Seq, r.Chain.Hash
		}
		l.tell(told)
		if r.Session != "" && r.Version > 0 {
			now := time.Since(l.began)
			l.heads = append(l.heads, head{Session: r.Session, Start: now, End: now, Version: r.Version})
		}
	case !follows(text, t.Result) && !follows(t.Result, text) && !t.twice:
		t.twice = true
		l.broken = append(l.broken, fmt.Sprintf("two results of run %s:\n%s\n%s", r.Run, t.Result, text))
	}
	l.mu.Unlock()
	l.write("result", time.Now(), r, nil)
}

// request sends a request once. A request without an answer in time counts as unanswered:
// soon if answers may get lost, and late if each must arrive.
func (l *clients) request(ctx context.Context, subject string, body any) ([]byte, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	patience := 3 * time.Second
	if l.patient {
		patience = untilBegun
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := l.nc.RequestWithContext(ctx, subject, data)
	if err != nil {
		return nil, err
	}
	var e struct {
		Error string `json:"error"`
		State string `json:"state"`
	}
	if err := json.Unmarshal(m.Data, &e); err != nil {
		return nil, fmt.Errorf("answer %q: %w", m.Data, err)
	}
	// The result of a failed or cancelled run contains the reason.
	if e.Error != "" && e.State == "" {
		return m.Data, fmt.Errorf("answer: %s", m.Data)
	}
	return m.Data, nil
}

func (l *clients) chance(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.random.IntN(n) == 0
}

func (l *clients) upTo(d time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.random.Int64N(int64(d)))
}

// linger waits for up to d before something is done to a run, or, half of the time,
// not at all: a quick run has ended by then.
func (l *clients) linger(ctx context.Context, d time.Duration) {
	if wait := l.upTo(2*d) - d; wait > 0 {
		sleep(ctx, wait)
	}
}

// submit sends a task once and reports whether it was acknowledged.
func (l *clients) submit(ctx context.Context, t *task) bool {
	start := time.Now()
	err := l.ask(ctx, question{kind: "submit", send: func(ctx context.Context) error { return l.publish(ctx, t.Workflow, t.body()) }})
	l.mu.Lock()
	t.Sent++
	if err == nil && !t.Acked {
		t.Acked = true
		l.tell(audit.Told{Op: "submit", Run: t.ID})
	}
	l.mu.Unlock()
	l.write("submit", start, map[string]string{"run": t.ID, "workflow": t.Workflow}, err)
	return err == nil
}

// publish returns nil when the stream of tasks holds a body.
func (l *clients) publish(ctx context.Context, workflow string, body map[string]any) error {
	data, err := l.request(ctx, "rath.task.default.anonymous."+workflow, body)
	var ack struct {
		Stream string `json:"stream"`
	}
	if err == nil {
		err = json.Unmarshal(data, &ack)
	}
	if err == nil && ack.Stream != "TASKS" {
		err = fmt.Errorf("answer %s", data)
	}
	return err
}

// run works until ctx ends, with a number of concurrent tasks.
func (l *clients) run(ctx context.Context, atOnce int) {
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for ctx.Err() == nil {
				l.one(ctx, l.task())
			}
		})
	}
	wg.Go(func() { every(ctx, 30*time.Millisecond, func() { l.look(ctx) }) })
	wg.Go(func() { every(ctx, 2*time.Second, func() { l.talk(ctx) }) })
	wg.Wait()
}

// every calls f until ctx ends, with pauses.
func every(ctx context.Context, pause time.Duration, f func()) {
	for {
		f()
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
