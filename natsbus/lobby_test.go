package natsbus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// fakeQueue is a queue and its stream, at a server that may be slow or silent.
type fakeQueue struct {
	jetstream.Consumer
	t       *testing.T
	prefix  string
	latency func() time.Duration

	mu      sync.Mutex
	silent  bool
	waits   []*fakeMsg // to be delivered
	there   map[*fakeMsg]bool
	asking  int
	asked   int
	changed chan struct{}
}

func newFakeQueue(t *testing.T, prefix string) *fakeQueue {
	return &fakeQueue{t: t, prefix: prefix, latency: func() time.Duration { return time.Millisecond }, there: map[*fakeMsg]bool{}, changed: make(chan struct{})}
}

// fakeMsg is a message of a fakeQueue.
type fakeMsg struct {
	jetstream.Msg
	q       *fakeQueue
	subject string
	handled int
	came    time.Time
	began   time.Time
}

func (m *fakeMsg) Subject() string   { return m.subject }
func (m *fakeMsg) InProgress() error { return nil }
func (m *fakeMsg) Ack() error        { m.q.gone(m); return nil }
func (m *fakeMsg) Nak() error        { m.q.put(m); return nil }
func (m *fakeMsg) NakWithDelay(d time.Duration) error {
	time.AfterFunc(d, func() { m.q.put(m) })
	return nil
}
func (m *fakeMsg) Metadata() (*jetstream.MsgMetadata, error) { return nil, errors.New("none") }

func (q *fakeQueue) send(tenant string) *fakeMsg {
	m := &fakeMsg{q: q, subject: q.prefix + tenant + ".w", came: time.Now()}
	q.put(m)
	return m
}

func (q *fakeQueue) put(m *fakeMsg) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.Contains(q.waits, m) {
		q.t.Errorf("%s was given back twice", m.subject)
	}
	q.there[m] = true
	q.waits = append(q.waits, m)
	close(q.changed)
	q.changed = make(chan struct{})
}

func (q *fakeQueue) gone(m *fakeMsg) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.there[m] {
		q.t.Errorf("%s was acknowledged twice", m.subject)
	}
	delete(q.there, m)
}

func (q *fakeQueue) hush(silent bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.silent = silent
}

// answers reports whether the server answers a request.
func (q *fakeQueue) answers(ctx context.Context) bool {
	q.mu.Lock()
	silent := q.silent
	q.mu.Unlock()
	if silent {
		pause(ctx, requestTimeout)
	}
	return !silent
}

// fakeStream is where a queue's messages are.
type fakeStream struct {
	jetstream.Stream
	q *fakeQueue
}

// Info tells the subjects. It is silent if the server is so when it is asked.
func (s fakeStream) Info(ctx context.Context, _ ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	q := s.q
	q.mu.Lock()
	q.asked++
	if q.asking++; q.asking > 1 {
		q.t.Errorf("%s is asked twice at once", q.prefix)
	}
	silent := q.silent
	q.mu.Unlock()
	if silent {
		<-ctx.Done()
	} else {
		pause(ctx, q.latency())
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asking--
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	info := &jetstream.StreamInfo{State: jetstream.StreamState{Subjects: map[string]uint64{}}}
	for m := range q.there {
		info.State.Subjects[m.subject]++
	}
	return info, nil
}

type fakeBatch chan jetstream.Msg

func (b fakeBatch) Messages() <-chan jetstream.Msg { return b }
func (b fakeBatch) Error() error                   { return nil }

// Info is what is looked at where nothing comes for long: the queue is opened anew.
func (q *fakeQueue) Info(context.Context) (*jetstream.ConsumerInfo, error) {
	return nil, errors.New("unknown")
}

func (q *fakeQueue) Fetch(n int, _ ...jetstream.FetchOpt) (jetstream.MessageBatch, error) {
	return q.fetch(n, pullFor), nil
}

func (q *fakeQueue) FetchNoWait(n int) (jetstream.MessageBatch, error) { return q.fetch(n, 0), nil }

func (q *fakeQueue) fetch(n int, most time.Duration) fakeBatch {
	out := make(fakeBatch, n)
	go func() {
		defer close(out)
		q.mu.Lock()
		silent := q.silent
		q.mu.Unlock()
		if silent { // as long as the client waits for an answer
			time.Sleep(time.Second)
			return
		}
		time.Sleep(q.latency())
		for end, got := time.After(most), 0; got < n; {
			q.mu.Lock()
			changed := q.changed
			took := q.waits[:min(n-got, len(q.waits))]
			q.waits = slices.Clone(q.waits[len(took):])
			q.mu.Unlock()
			for _, m := range took {
				out <- m
			}
			if got += len(took); got == n || most == 0 {
				return
			}
			select {
			case <-changed:
			case <-end:
				return
			}
		}
	}()
	return out
}

// fakeNode is a process that pulls from queues.
type fakeNode struct {
	c      *Conn
	slots  int
	task   time.Duration
	mu     sync.Mutex
	begins []time.Time
}

func newFakeNode(slots int, task time.Duration) *fakeNode {
	n := &fakeNode{c: &Conn{lobby: newLobby()}, slots: slots, task: task}
	n.c.relink()
	return n
}

// pull takes messages from a queue until stop is called, as puller.run does. stop
// waits for what was taken.
func (n *fakeNode) pull(q *fakeQueue, rank int) (stop func()) {
	ctx, cancel := context.WithCancel(q.t.Context())
	ended := make(chan struct{})
	p := &puller{
		c: n.c, pullQueue: pullQueue{filter: q.prefix + ">"}, lobby: n.c.lobby, rank: rank, source: fakeStream{q: q},
		slots: func() int { return n.slots },
		handle: func(_ context.Context, m jsMsg) fate {
			select {
			case <-ended:
				q.t.Errorf("%s was begun by who has left", m.Subject())
			default:
			}
			n.mu.Lock()
			n.begins = append(n.begins, time.Now())
			f := m.(*fakeMsg)
			if f.handled++; f.handled == 1 {
				f.began = time.Now()
			}
			n.mu.Unlock()
			time.Sleep(n.task)
			return done
		},
	}
	go func() {
		defer close(ended)
		defer p.wg.Wait()
		var idle checkup
		for wait := newBackoff(); ctx.Err() == nil; _ = wait.sleep(ctx) {
			if q.answers(ctx) { // else it cannot be opened
				_ = p.pull(ctx, q, &idle, &wait)
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// TestLobbySilentServer has slots that are all taken, and two queues, of which one
// is at a server that does not answer: the other goes on, and its tenants take
// turns.
func TestLobbySilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const task = 100 * time.Millisecond
		n := newFakeNode(1, task)
		a, b := newFakeQueue(t, "a."), newFakeQueue(t, "b.")
		for range 2000 {
			a.send("greedy")
			b.send("greedy")
		}
		stops := []func(){n.pull(a, 0), n.pull(b, 1)}
		time.Sleep(2 * time.Second)
		a.hush(true)
		var modest []*fakeMsg
		began := time.Now()
		for range 10 {
			time.Sleep(1700 * time.Millisecond)
			modest = append(modest, b.send("modest"))
		}
		time.Sleep(3 * time.Second)
		for _, stop := range stops {
			stop()
		}
		longest, last, count := time.Duration(0), began, 0
		for _, at := range n.begins {
			if at.After(began) {
				longest, last, count = max(longest, at.Sub(last)), at, count+1
			}
		}
		if longest > task+lobbyPatience+50*time.Millisecond {
			t.Errorf("no task began for %v, want at most %v", longest, task+lobbyPatience)
		}
		if want := int(last.Sub(began)/task) * 85 / 100; count < want {
			t.Errorf("%d tasks began in %v, want %d", count, last.Sub(began), want)
		}
		for i, m := range modest {
			if d := m.began.Sub(m.came); m.handled == 0 || d > 2*task+lobbyPatience+50*time.Millisecond { // and the look itself
				t.Errorf("modest %d was handled %d times, after %v", i, m.handled, d)
			}
		}
	})
}

// TestLobbySlowServer has the tenant whose turn it is wait behind many messages of
// another one, at a server that takes its time: he is found, and gets the slot that
// became free.
func TestLobbySlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const task = time.Second
		n := newFakeNode(1, task)
		a := newFakeQueue(t, "a.")
		a.latency = func() time.Duration { return 20 * time.Millisecond }
		for range 2000 {
			a.send("greedy")
		}
		stop := n.pull(a, 0)
		var modest []*fakeMsg
		for range 10 {
			time.Sleep(3270 * time.Millisecond)
			modest = append(modest, a.send("modest"))
		}
		time.Sleep(3 * task)
		stop()
		for i, m := range modest {
			if d := m.began.Sub(m.came); m.handled == 0 || d > task+800*time.Millisecond {
				t.Errorf("modest %d was handled %d times, after %v, want at most what the task before took, and the search", i, m.handled, d)
			}
		}
	})
}

// TestLobbyAbsent has many tenants wait whose messages another process handles: that
// they are looked for in vain keeps nobody else from the slots.
func TestLobbyAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const task, plays = 100 * time.Millisecond, 10 * time.Second
		n := newFakeNode(1, task)
		a := newFakeQueue(t, "a.")
		a.latency = func() time.Duration { return 5 * time.Millisecond }
		for range 200 {
			a.send("greedy")
		}
		for i := range 60 {
			m := &fakeMsg{q: a, subject: fmt.Sprintf("a.away%d.w", i)}
			a.there[m] = true
		}
		stop := n.pull(a, 0)
		time.Sleep(plays)
		stop()
		if want := int(plays/task) / 2; len(n.begins) < want {
			t.Errorf("%d tasks began in %v, want %d", len(n.begins), plays, want)
		}
	})
}

// TestLobbyLosesNothing lets servers be slow and silent, and queues come and go, at
// random: each message is handled once, no queue is asked twice at once, and in the
// end none is left.
func TestLobbyLosesNothing(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				dice := rand.New(rand.NewPCG(seed, 7))
				roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return dice.IntN(n) }
				n := newFakeNode(1+roll(4), 20*time.Millisecond)
				var queues []*fakeQueue
				var all []*fakeMsg
				for i := range 3 {
					q := newFakeQueue(t, fmt.Sprintf("q%d.", i))
					q.latency = func() time.Duration { return time.Duration(roll(40)) * time.Millisecond }
					queues = append(queues, q)
				}
				var stops []func()
				for i, q := range queues {
					stops = append(stops, n.pull(q, i))
				}
				began := time.Now()
				for range 200 {
					time.Sleep(time.Duration(roll(60)) * time.Millisecond)
					switch q := roll(len(queues)); roll(10) {
					case 0:
						queues[q].hush(true)
					case 1, 2:
						queues[q].hush(false)
					case 3, 4:
						stops[q]()
						stops[q] = n.pull(queues[q], q)
					default:
						tenant := fmt.Sprintf("t%d", roll(6))
						for range 1 + roll(20) {
							all = append(all, queues[q].send(tenant))
						}
					}
				}
				for _, q := range queues {
					q.hush(false)
				}
				left := func() (n int) {
					for _, q := range queues {
						q.mu.Lock()
						n += len(q.there)
						q.mu.Unlock()
					}
					return n
				}
				for end := time.Now().Add(2 * time.Minute); left() > 0 && time.Now().Before(end); {
					time.Sleep(100 * time.Millisecond)
				}
				for _, stop := range stops {
					stop()
				}
				took := time.Since(began)
				if l := left(); l > 0 {
					t.Errorf("%d of %d messages are left after %v", l, len(all), took)
				}
				for _, m := range all {
					if m.handled != 1 {
						t.Errorf("%s was handled %d times", m.subject, m.handled)
					}
				}
				for _, q := range queues {
					if most := int(took / lobbyAsk); q.asked == 0 || q.asked > most {
						t.Errorf("%s was asked %d times in %v", q.prefix, q.asked, took)
					}
				}
			})
		})
	}
}
