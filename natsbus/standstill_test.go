package natsbus

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestStandstill leaves a consumer that counts messages as done which lie in
// its stream: it gave them once, and would not again. The puller makes it anew.
func TestStandstill(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Conn, _ *wire) {
		queue := workQueue(DefaultPool, messages.ClassInteractive)
		broken := queue.config()
		broken.MaxDeliver, broken.AckWait = 1, time.Second
		consumer, err := c.js.CreateConsumer(t.Context(), queue.stream, broken)
		if err != nil {
			t.Fatal(err)
		}
		task := run.Task{ID: "r1", Workflow: "w", Session: key("s1"), Resume: true}
		if err := c.PublishWork(t.Context(), DefaultPool, messages.ClassInteractive, run.Work{Task: &task}); err != nil {
			t.Fatal(err)
		}
		batch, err := consumer.Fetch(1)
		if err != nil {
			t.Fatal(err)
		}
		for range batch.Messages() {
			// It is not acknowledged.
		}
		time.Sleep(2 * time.Second)

		got := make(chan run.Work, 1)
		began := time.Now()
		stop := background(t, func(ctx context.Context) error {
			return c.PullWork(ctx, DefaultPool, func() int { return 4 }, func(_ context.Context, w run.Work) error {
				got <- w
				if w.Task.ID == "r2" {
					time.Sleep(5 * standstill)
				}
				return nil
			})
		})
		select {
		case w := <-got:
			if w.Task == nil || w.Task.ID != "r1" {
				t.Errorf("got %+v", w)
			}
			if d := time.Since(began); d > 2*standstill+5*time.Second {
				t.Errorf("it came after %v", d)
			}
		case <-time.After(time.Hour):
			t.Error("nobody ever gets the work")
		}
		// A queue with nothing in it is left alone, and so is one whose messages
		// are in somebody's hands.
		made := consumerOf(t, c, queue).Created
		slow := run.Task{ID: "r2", Workflow: "w", Session: key("s2"), Resume: true}
		if err := c.PublishWork(t.Context(), DefaultPool, messages.ClassInteractive, run.Work{Task: &slow}); err != nil {
			t.Fatal(err)
		}
		<-got
		time.Sleep(10 * standstill)
		if again := consumerOf(t, c, queue).Created; !again.Equal(made) {
			t.Error("a consumer at rest was made anew")
		}
		select {
		case w := <-got:
			t.Errorf("run %s was given twice", w.Task.ID)
		default:
		}
		stop()
	})
}

// keep gives the only message of a queue to nobody, from a consumer that counts
// it as given and does not give it again for as long as a test takes.
func keep(t *testing.T, c *Conn, q pullQueue) {
	t.Helper()
	cfg := q.config()
	cfg.AckWait = 1000 * time.Hour
	consumer, err := c.js.CreateConsumer(t.Context(), q.stream, cfg)
	if err != nil {
		t.Fatal(err)
	}
	batch, err := consumer.Fetch(1)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for range batch.Messages() {
		n++ // and it is not acknowledged
	}
	if info, err := consumer.Info(t.Context()); err != nil || n != 1 || info.NumAckPending != 1 || info.NumPending != 0 {
		t.Fatalf("the consumer gave %d messages: %+v, %v", n, info, err)
	}
}

// TestSilentConsumer: a consumer keeps a message as given that nobody has. Two
// nodes that ask in vain make it anew, one time each at most, and leave the new
// one alone, though it gives a message again and again that nobody can take yet.
func TestSilentConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		var log logBuffer
		node := func() *Conn {
			o := nodeOptions(srv)
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			return dial(t, o)
		}
		nodes := []*Conn{node(), node()}
		if err := nodes[0].Provision(t.Context()); err != nil {
			t.Fatal(err)
		}
		queue := workQueue(DefaultPool, messages.ClassInteractive)
		task := run.Task{ID: "r1", Workflow: "w", Session: key("s1"), Resume: true}
		if err := nodes[0].PublishWork(t.Context(), DefaultPool, messages.ClassInteractive, run.Work{Task: &task}); err != nil {
			t.Fatal(err)
		}
		keep(t, nodes[0], queue)

		ctx, cancel := context.WithCancel(t.Context())
		var pulling sync.WaitGroup
		var given, taken atomic.Int64
		began, first := time.Now(), make(chan time.Duration, 1)
		for _, c := range nodes {
			pulling.Go(func() {
				err := c.PullWork(ctx, DefaultPool, func() int { return 4 }, func(context.Context, run.Work) error {
					if given.Add(1) == 1 {
						first <- time.Since(began)
					}
					if time.Since(began) < 20*standstill {
						return errors.New("not yet")
					}
					taken.Add(1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(25 * standstill)
		select {
		case d := <-first:
			if most := silentLooks*(standstill+pullFor) + 5*time.Second; d > most {
				t.Errorf("the work came after %v, want %v at most", d, most)
			}
		default:
			t.Error("nobody ever gets the work")
		}
		if n := strings.Count(log.String(), silent); n < 1 || n > len(nodes) {
			t.Errorf("the consumer was made anew %d times", n)
		}
		if n := strings.Count(log.String(), miscounted); n > 0 {
			t.Errorf("the consumer was called wrong %d times", n)
		}
		if n := taken.Load(); n < 1 || n > int64(len(nodes)) {
			t.Errorf("the work was taken %d times", n)
		}
		left, err := nodes[0].subjects(t.Context(), queue.stream, queue.filter)
		if err != nil || len(left) > 0 {
			t.Errorf("left in the queue: %v, %v", left, err)
		}
		cancel()
		pulling.Wait()
	})
}

// logBuffer is what was logged, by several.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestSkippedMessage has a consumer give all that comes but one message: it counts
// that as done, or as given though nobody has it. It is made anew, though it is never
// idle for long; not while a message is given again and again that nobody can take
// yet, and others behind it.
func TestSkippedMessage(t *testing.T) {
	// A look after which this puller was given nothing does not count.
	const passedMost = passedLooks * 3 / 2 * (standstill + looksApart + pullFor)
	queue := workQueue(DefaultPool, messages.ClassInteractive)
	offer := func(t *testing.T, c *Conn, id run.ID) {
		t.Helper()
		task := run.Task{ID: id, Workflow: "w", Session: key(string(id)), Resume: true}
		if err := c.PublishWork(t.Context(), DefaultPool, messages.ClassInteractive, run.Work{Task: &task}); err != nil {
			t.Error(err)
		}
	}
	first := func(t *testing.T, c *Conn, cfg jetstream.ConsumerConfig) {
		t.Helper()
		consumer, err := c.js.CreateConsumer(t.Context(), queue.stream, cfg)
		if err != nil {
			t.Fatal(err)
		}
		offer(t, c, "stuck")
		batch, err := consumer.Fetch(1)
		if err != nil {
			t.Fatal(err)
		}
		for range batch.Messages() {
			// It is not acknowledged.
		}
	}
	for name, tc := range map[string]struct {
		lose  func(t *testing.T, c *Conn)
		every time.Duration // something else comes
		slots int
		nodes int    // besides two
		full  bool   // the first node is at something nearly all the time
		why   string // "": nothing is wrong
		or    string // another reason, "" if there is none
		most  time.Duration
	}{
		"counted as done": {lose: func(t *testing.T, c *Conn) {
			cfg := queue.config()
			cfg.MaxDeliver, cfg.AckWait = 1, time.Second
			first(t, c, cfg)
		}, every: time.Second, slots: 4, why: miscounted, most: 10 * standstill},
		"counted as done, sometimes idle": {lose: func(t *testing.T, c *Conn) {
			cfg := queue.config()
			cfg.MaxDeliver, cfg.AckWait = 1, time.Second
			first(t, c, cfg)
		}, every: standstill + standstill/2, slots: 4, why: miscounted, most: 10 * standstill},
		"counted as done, no slot free for long": {lose: func(t *testing.T, c *Conn) {
			cfg := queue.config()
			cfg.MaxDeliver, cfg.AckWait = 1, time.Second
			first(t, c, cfg)
			// While no message is acknowledged before the next is given, the server may leave
			// its floor of acknowledgements where it is, for a look or for as long as that goes
			// on. Then that messages pass this one by has to tell.
		}, every: time.Second, slots: 1, why: miscounted, or: passedOver, most: passedMost},
		"counted as given": {lose: func(t *testing.T, c *Conn) {
			cfg := queue.config()
			cfg.AckWait = 1000 * time.Hour
			first(t, c, cfg)
		}, every: time.Second, slots: 4, why: passedOver, most: passedMost},
		"given again and again":                    {lose: func(t *testing.T, c *Conn) { offer(t, c, "later") }, every: time.Second, slots: 4},
		"given again and again to many":            {lose: func(t *testing.T, c *Conn) { offer(t, c, "later") }, every: 200 * time.Millisecond, slots: 4, nodes: 38},
		"given again and again to those with room": {lose: func(t *testing.T, c *Conn) { offer(t, c, "later") }, every: 200 * time.Millisecond, slots: 4, nodes: 2, full: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := natstest.Start(t, nil)
				var log logBuffer
				node := func() *Conn {
					o := nodeOptions(srv)
					o.Logger = slog.New(slog.NewTextHandler(&log, nil))
					return dial(t, o)
				}
				nodes := []*Conn{node(), node()}
				for range tc.nodes {
					nodes = append(nodes, node())
				}
				if err := nodes[0].Provision(t.Context()); err != nil {
					t.Fatal(err)
				}
				tc.lose(t, nodes[0])
				ctx, cancel := context.WithCancel(t.Context())
				var busy sync.WaitGroup
				var others atomic.Int64
				began, stuck := time.Now(), make(chan time.Duration, 9)
				for i, c := range nodes {
					slots, works := tc.slots, time.Duration(4/tc.slots)*600*time.Millisecond
					if tc.full && i == 0 {
						slots, works = 1, 7*time.Second
					}
					busy.Go(func() {
						err := c.PullWork(ctx, DefaultPool, func() int { return slots }, func(_ context.Context, w run.Work) error {
							switch w.Task.ID {
							case "stuck":
								stuck <- time.Since(began)
							case "later":
								return errors.New("not yet")
							default:
								others.Add(1)
								time.Sleep(works)
							}
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					})
				}
				busy.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						offer(t, nodes[0], run.ID("r"+strconv.Itoa(n)))
						pause(ctx, tc.every)
					}
				})
				time.Sleep(passedMost + time.Second)
				cancel()
				busy.Wait()
				if n := others.Load(); n < int64(passedLooks*standstill/tc.every) {
					t.Errorf("of the others %d came", n)
				}
				made := 0
				for _, why := range []string{miscounted, silent, passedOver} {
					n := strings.Count(log.String(), why)
					if made += n; n > 0 && why != tc.why && why != tc.or {
						t.Errorf("it was made anew %d times because %s", n, why)
					}
				}
				if tc.why == "" {
					return
				}
				if made < 1 || made > len(nodes) {
					t.Errorf("it was made anew %d times", made)
				}
				select {
				case d := <-stuck:
					if d > tc.most {
						t.Errorf("the message came after %v, want %v at most", d, tc.most)
					}
				default:
					t.Error("nobody ever gets the message")
				}
			})
		})
	}
}

// TestLooks tells from what looks find when a consumer is made anew.
func TestLooks(t *testing.T) {
	at := time.Unix(1000, 0)
	type found struct {
		pending, acks, held int
		given               uint64
		made, last          int // seconds
	}
	same := func(n int, f found) []found {
		return slices.Repeat([]found{f}, n)
	}
	// A message that is gone from the stream is counted as given, and hides one
	// that is not counted.
	hidden := found{acks: 1, held: 1, given: 7, last: 5}
	tests := map[string]struct {
		looks []found
		want  string // of the last one; all before want nothing
	}{
		"nothing there":         {same(20, found{given: 7}), ""},
		"not counted":           {same(2, found{held: 1}), miscounted},
		"not given":             {same(2, found{pending: 1, held: 1}), miscounted},
		"not given by the new":  {[]found{{pending: 1, held: 1}, {pending: 1, held: 1, made: 1}}, ""},
		"given to others":       {[]found{{pending: 1, acks: 1, held: 2, given: 1}, {pending: 1, acks: 1, held: 2, given: 2}}, ""},
		"counted in part":       {[]found{{pending: 1, acks: 1, held: 3, given: 1}, {pending: 1, acks: 1, held: 3, given: 2}}, miscounted},
		"full":                  {same(silentLooks-1, found{pending: 1, acks: 16 << 10, held: 16<<10 + 1}), ""},
		"full of what is gone":  {same(silentLooks, found{pending: 1, acks: 16 << 10, held: 16<<10 + 1}), silent},
		"kept":                  {same(silentLooks, hidden), silent},
		"not yet":               {same(silentLooks-1, hidden), ""},
		"empty in between":      {slices.Concat(same(silentLooks-1, hidden), same(1, found{given: 7, last: 5}), same(silentLooks-1, hidden)), ""},
		"given in between":      {slices.Concat(same(silentLooks-1, hidden), same(silentLooks-1, found{acks: 1, held: 1, given: 8, last: 5})), ""},
		"somebody has it":       {[]found{{0, 1, 1, 7, 0, 1}, {0, 1, 1, 7, 0, 11}, {0, 1, 1, 7, 0, 21}, {0, 1, 1, 7, 0, 31}, {0, 1, 1, 7, 0, 41}}, ""},
		"made anew by another":  {slices.Concat(same(silentLooks-1, hidden), same(silentLooks-1, found{acks: 1, held: 1, given: 7, last: 5, made: 1})), ""},
		"kept after a new one":  {slices.Concat(same(2, hidden), same(silentLooks, found{acks: 1, held: 1, given: 7, last: 5, made: 1})), silent},
		"nothing was ever told": {same(silentLooks, found{acks: 1, held: 1, last: -1}), silent},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var k checkup
			for n, f := range tc.looks {
				info := &jetstream.ConsumerInfo{
					Created: at.Add(time.Duration(f.made) * time.Second), NumPending: uint64(f.pending), NumAckPending: f.acks,
					Delivered: jetstream.SequenceInfo{Consumer: f.given}, Config: signalsQueue().config(),
				}
				if f.last >= 0 {
					last := at.Add(time.Duration(f.last) * time.Second)
					info.Delivered.Last = &last
				}
				want := ""
				if n == len(tc.looks)-1 {
					want = tc.want
				}
				if why := k.found(info, uint64(f.held)); why != want {
					t.Errorf("look %d: made anew because %q, want %q", n+1, why, want)
				}
			}
		})
	}
}

// TestUnheardConsumer: there is a consumer that answers how it stands, and nobody
// hears who asks it for messages. It is made anew.
func TestUnheardConsumer(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Conn, w *wire) {
		queue := workQueue(DefaultPool, messages.ClassInteractive)
		if _, err := c.openQueue(t.Context(), &election{}, queue); err != nil {
			t.Fatal(err)
		}
		made := consumerOf(t, c, queue).Created
		var removed atomic.Bool
		var unheard atomic.Int64
		asked := []byte("CONSUMER.MSG.NEXT." + queue.stream + "." + queue.durable + " ")
		w.set(nil, func(b []byte) bool {
			if bytes.Contains(b, []byte(apiConsumerDelete+queue.stream+"."+queue.durable)) {
				removed.Store(true)
			}
			for rest := b; !removed.Load(); {
				i := bytes.Index(rest, asked)
				if i < 0 {
					break
				}
				unheard.Add(1)
				rest = rest[i+len(asked):]
				copy(b[len(b)-len(rest)-2:], "X ") // that consumer nobody knows
			}
			return true
		})
		task := run.Task{ID: "r1", Workflow: "w", Session: key("s1"), Resume: true}
		if err := c.PublishWork(t.Context(), DefaultPool, messages.ClassInteractive, run.Work{Task: &task}); err != nil {
			t.Fatal(err)
		}
		began, got := time.Now(), make(chan time.Duration, 1)
		stop := background(t, func(ctx context.Context) error {
			return c.PullWork(ctx, DefaultPool, func() int { return 4 }, func(context.Context, run.Work) error {
				got <- time.Since(began)
				return nil
			})
		})
		time.Sleep(10 * standstill)
		select {
		case d := <-got:
			if d > 2*standstill+5*time.Second {
				t.Errorf("the work came after %v", d)
			}
		default:
			t.Error("nobody ever gets the work")
		}
		w.set(nil, nil)
		if unheard.Load() == 0 {
			t.Error("nobody asked in vain")
		}
		if again := consumerOf(t, c, queue).Created; !again.After(made) {
			t.Errorf("the consumer is that of %v", again)
		}
		stop()
	})
}

// TestLooksCost: a puller, be it idle or busy, asks now and then how its consumer
// stands and for one message of its stream, and no more.
func TestLooksCost(t *testing.T) {
	for name, every := range map[string]time.Duration{"idle": time.Hour, "busy": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *Conn, w *wire) {
				offered := make(chan struct{})
				stop := background(t, func(ctx context.Context) error {
					return c.PullWork(ctx, DefaultPool, func() int { return 4 }, func(context.Context, run.Work) error { return nil })
				})
				time.Sleep(standstill / 2)
				queues := []pullQueue{workQueue(DefaultPool, messages.ClassInteractive), workQueue(DefaultPool, messages.ClassBatch), signalsQueue()}
				var consumers, one, counts atomic.Int64
				w.set(nil, func(b []byte) bool {
					consumers.Add(int64(bytes.Count(b, []byte("PUB "+apiConsumerInfo))))
					one.Add(int64(bytes.Count(b, []byte("PUB "+apiMsgGet))))
					counts.Add(int64(bytes.Count(b, []byte("PUB "+apiStreamInfo))))
					return true
				})
				const looks = 6
				go func() {
					defer close(offered)
					for n := 0; n < int(looks*standstill/every); n++ {
						task := run.Task{ID: "r1", Workflow: "w", Session: key("s" + strconv.Itoa(n)), Resume: true}
						if err := c.PublishWork(t.Context(), DefaultPool, messages.ClassInteractive, run.Work{Task: &task}); err != nil {
							t.Error(err)
						}
						pause(t.Context(), every)
					}
				}()
				time.Sleep(looks * (standstill + pullFor))
				w.set(nil, nil)
				<-offered
				n, m := consumers.Load(), one.Load()
				if most := int64(looks * len(queues)); n < looks || n > most+int64(len(queues)) || m < n || m > 2*n || counts.Load() > 0 {
					t.Errorf("%d looks of %d pullers: asked of consumers %d times, for a message %d times, of streams %d times", looks, len(queues), n, m, counts.Load())
				}
				stop()
			})
		})
	}
}

func consumerOf(t *testing.T, c *Conn, q pullQueue) *jetstream.ConsumerInfo {
	t.Helper()
	consumer, err := c.js.Consumer(t.Context(), q.stream, q.durable)
	if err != nil {
		t.Fatal(err)
	}
	return consumer.CachedInfo()
}

// TestLostConsumer has no server answer for a consumer, nor for its removal,
// though its stream is served. It is made anew by a node that pulls from it,
// and by one that starts.
func TestLostConsumer(t *testing.T) {
	queue := workQueue(DefaultPool, messages.ClassInteractive)
	pull := func(t *testing.T, c *Conn) {
		task := run.Task{ID: "r1", Workflow: "w", Session: key("s1"), Resume: true}
		if err := c.PublishWork(t.Context(), DefaultPool, messages.ClassInteractive, run.Work{Task: &task}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		got := false
		err := c.PullWork(ctx, DefaultPool, func() int { return 4 }, func(_ context.Context, w run.Work) error {
			got = w.Task != nil && w.Task.ID == "r1"
			cancel()
			return nil
		})
		if err != nil || !got {
			t.Errorf("the work: %v, %v", got, err)
		}
	}
	provision := func(t *testing.T, c *Conn) {
		if err := c.Provision(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for name, begin := range map[string]func(*testing.T, *Conn){"pull": pull, "start": provision} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *Conn, w *wire) {
				var removed atomic.Bool
				c.o.Pools = []string{DefaultPool}
				provision(t, c)
				made := consumerOf(t, c, queue).Created
				const answer = `{"type":"io.nats.jetstream.api.v1.`
				const noLeader = `{"error":{"code":503,"err_code":10008},"d":"d"`
				lost := func(b []byte) bool {
					const info, removal = answer + `consumer_info_response"`, answer + `consumer_delete_response"`
					if bytes.Contains(b, []byte(removal)) {
						replace(removal, noLeader)(b)
					}
					if !removed.Load() && bytes.Contains(b, []byte(info)) && bytes.Contains(b, []byte(`"name":"`+queue.durable)) {
						replace(info, noLeader)(b)
					}
					return true
				}
				w.set(lost, func(b []byte) bool {
					if bytes.Contains(b, []byte(apiConsumerDelete+queue.stream+"."+queue.durable)) {
						removed.Store(true)
					}
					return true
				})
				began := time.Now()
				begin(t, c)
				if d := time.Since(began); d > 4*patience {
					t.Errorf("it took %v", d)
				}
				w.set(nil, nil)
				if again := consumerOf(t, c, queue).Created; !removed.Load() || !again.After(made) {
					t.Errorf("the consumer of %v is that of %v", again, made)
				}
			})
		})
	}
}
