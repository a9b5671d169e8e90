package actors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// asking is a workflow "w" that asks for a word between two steps, and counts
// what executes.
type asking struct {
	mu    sync.Mutex
	calls []string // "node what"
	hold  chan struct{}
}

func (a *asking) count(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, what)
}

func (a *asking) done() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.calls)
}

func (a *asking) step(ctx context.Context, node, name string) error {
	_, err := flow.Do(ctx, name, func(ctx context.Context) (string, error) {
		a.count(node + " " + name)
		if a.hold != nil && name == "after" {
			select {
			case <-a.hold:
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
		return name, nil
	}, flow.Effect(tool.ReadOnly))
	return err
}

// host is a System that offers the workflow, and "hold", which keeps its slot.
func (a *asking) host(t *testing.T, log session.Log, o actors.Options) *actors.System {
	t.Helper()
	node := o.Incarnation
	if node == "" {
		node = "n1"
	}
	o.Workflows = &flow.Registry{}
	offer := func(name string, w func(context.Context, session.Session) (session.Session, error)) {
		if err := o.Workflows.Register(flow.Registration{Name: name, Revision: "1", New: func() flow.Workflow { return flow.Func(w) }}); err != nil {
			t.Fatal(err)
		}
	}
	offer("w", func(ctx context.Context, s session.Session) (session.Session, error) {
		a.count(node + " forward")
		if err := a.step(ctx, node, "before"); err != nil {
			return s, err
		}
		word, err := flow.Await[string](ctx, "word", nil)
		if err != nil {
			return s, err
		}
		if err := a.step(ctx, node, "after"); err != nil {
			return s, err
		}
		return s.With(session.AssistantText(word)), nil
	})
	offer("hold", func(ctx context.Context, s session.Session) (session.Session, error) {
		<-ctx.Done()
		return s, context.Cause(ctx)
	})
	return host(t, log, &work{}, o)
}

func respond(k session.Key, id run.ID, word string) run.Signal {
	return run.Signal{To: k, Run: id, Received: &run.Received{Kind: run.Respond, Path: "1", Value: `"` + word + `"`}}
}

func signalled(t *testing.T, sys *actors.System, sig run.Signal) {
	t.Helper()
	if err := sys.Signal(t.Context(), sig); err != nil {
		t.Fatal(err)
	}
}

// resumes counts what the log of a session derives: offers of its runs.
func resumes(t *testing.T, log session.Log, k session.Key) int {
	t.Helper()
	n := 0
	for e, err := range log.Read(t.Context(), k, session.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		work, err := run.Derive(e)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range work {
			if w.Task != nil && w.Task.Resume {
				n++
			}
		}
	}
	return n
}

// wakes are the wake numbers and the claims in the log of a session.
func wakes(t *testing.T, log session.Log, k session.Key) string {
	t.Helper()
	var all []string
	for e, err := range log.Read(t.Context(), k, session.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range e.Commit.Events {
			switch ev.Kind {
			case run.KindReceived:
				v, err := run.Read[run.Received](ev)
				if err != nil {
					t.Fatal(err)
				}
				if v.Wake > 0 {
					all = append(all, fmt.Sprintf("%d:wake%d", e.Commit.Seq, v.Wake))
				}
			case run.KindClaimed:
				v, err := run.Read[run.Claimed](ev)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, fmt.Sprintf("%d:%s#%d", e.Commit.Seq, v.Incarnation, v.Attempt))
			}
		}
	}
	return strings.Join(all, " ")
}

func offerOf(id string, k session.Key) run.Task {
	return run.Task{ID: run.ID(id), Workflow: "w", Session: k, Resume: true}
}

// TestLinger: a run whose answer comes soon goes on where it waits, with the
// claim in the commit that brings the answer. It is not offered, and its code
// does not run again. Meanwhile it has no slot.
func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w, k := &faults{}, &asking{}, key("s1")
		sys := w.host(t, log, actors.Options{Slots: 2})
		accepted(t, sys, task("r1", k))
		time.Sleep(actors.DefaultLinger - time.Millisecond)
		if r := state(t, log, k, "r1"); r.State != run.Waiting || sys.Free() != 2 || sys.Running() != 0 {
			t.Fatalf("it is %s, %d slots are free, %d runs execute", r.State, sys.Free(), sys.Running())
		}
		signalled(t, sys, respond(k, "r1", "yes"))
		synctest.Wait()
		if r := state(t, log, k, "r1"); r.State != run.Succeeded || r.Attempt != 2 || r.Ended.Output != "yes" {
			t.Errorf("it %s as attempt %d with %+v", r.State, r.Attempt, r.Ended)
		}
		if want := []string{"n1 forward", "n1 before", "n1 after"}; !slices.Equal(w.done(), want) {
			t.Errorf("executed %q, want %q", w.done(), want)
		}
		if n := resumes(t, log, k); n != 0 {
			t.Errorf("it is offered %d times", n)
		}
		if got, want := wakes(t, log, k), "1:n1#1 4:wake1 4:n1#2"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if sys.Free() != 2 || sys.Running() != 0 {
			t.Errorf("at the end %d slots are free, %d runs execute", sys.Free(), sys.Running())
		}
	})
}

// TestLingerHasABound: after it nothing of the run is left, and an answer lets it
// be offered.
func TestLingerHasABound(t *testing.T) {
	for _, linger := range []time.Duration{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			log, w, k := &faults{}, &asking{}, key("s1")
			sys := w.host(t, log, actors.Options{Linger: linger})
			accepted(t, sys, task("r1", k))
			if linger == 0 {
				time.Sleep(actors.DefaultLinger + time.Millisecond)
			}
			synctest.Wait()
			signalled(t, sys, respond(k, "r1", "yes"))
			synctest.Wait()
			if r := state(t, log, k, "r1"); r.State != run.Queued || r.Attempt != 1 || resumes(t, log, k) != 1 {
				t.Errorf("it is %s, attempt %d, offered %d times", r.State, r.Attempt, resumes(t, log, k))
			}
			accepted(t, sys, offerOf("r1", k))
			synctest.Wait()
			want := []string{"n1 forward", "n1 before", "n1 forward", "n1 after"}
			if r := state(t, log, k, "r1"); r.State != run.Succeeded || !slices.Equal(w.done(), want) {
				t.Errorf("it %s, executed %q", r.State, w.done())
			}
		})
	}
}

// TestLingerWhileOthersNeedTheSlot: who waits does not keep the slot from others,
// and leaves when it cannot have it back.
func TestLingerWhileOthersNeedTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w, k := &faults{}, &asking{}, key("s1")
		sys := w.host(t, log, actors.Options{Slots: 1, Drain: time.Second})
		accepted(t, sys, task("r1", k))
		synctest.Wait()
		accepted(t, sys, run.Task{ID: "r2", Workflow: "hold", Session: key("s2")})
		signalled(t, sys, respond(k, "r1", "yes"))
		synctest.Wait()
		if r := state(t, log, k, "r1"); r.State != run.Queued || resumes(t, log, k) != 1 || sys.Running() != 1 {
			t.Errorf("it is %s, offered %d times, %d runs execute", r.State, resumes(t, log, k), sys.Running())
		}
		signalled(t, sys, run.Signal{To: key("s2"), Run: "r2", Cancel: &run.CancelRequested{Reason: "test"}})
		synctest.Wait()
		accepted(t, sys, offerOf("r1", k))
		synctest.Wait()
		if r := state(t, log, k, "r1"); r.State != run.Succeeded || sys.Free() != 1 {
			t.Errorf("it %s, %d slots are free", r.State, sys.Free())
		}
	})
}

// TestLingerAsManyAsSlots: the memory of runs that wait has a bound too.
func TestLingerAsManyAsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := &faults{}, &asking{}
		sys := w.host(t, log, actors.Options{Slots: 1})
		for _, id := range []string{"r1", "r2"} {
			accepted(t, sys, task(id, key("of-"+id)))
			synctest.Wait()
		}
		for id, offers := range map[string]int{"r1": 0, "r2": 1} {
			k := key("of-" + id)
			signalled(t, sys, respond(k, run.ID(id), "yes"))
			synctest.Wait()
			if n := resumes(t, log, k); n != offers {
				t.Errorf("%s is offered %d times, want %d", id, n, offers)
			}
		}
	})
}

// TestLingerAnsweredElsewhere: another node commits the answer. The run is
// offered, and goes on there or here; what lingered writes nothing.
func TestLingerAnsweredElsewhere(t *testing.T) {
	for _, goes := range []string{"n1", "n2"} {
		t.Run(goes, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, w, k := &faults{}, &asking{}, key("s1")
				nodes := map[string]*actors.System{
					"n1": w.host(t, log, actors.Options{}), "n2": w.host(t, log, actors.Options{Incarnation: "n2"}),
				}
				accepted(t, nodes["n1"], task("r1", k))
				synctest.Wait()
				if err := nodes["n2"].Store().Apply(t.Context(), respond(k, "r1", "yes")); err != nil {
					t.Fatal(err)
				}
				if n := resumes(t, log, k); n != 1 {
					t.Errorf("it is offered %d times", n)
				}
				accepted(t, nodes[goes], offerOf("r1", k))
				synctest.Wait()
				time.Sleep(time.Minute)
				want := []string{"n1 forward", "n1 before", goes + " forward", goes + " after"}
				if r := state(t, log, k, "r1"); r.State != run.Succeeded || r.Attempt != 2 || !slices.Equal(w.done(), want) {
					t.Errorf("it %s as attempt %d, executed %q", r.State, r.Attempt, w.done())
				}
				if got, want := wakes(t, log, k), fmt.Sprintf("1:n1#1 4:wake1 5:%s#2", goes); got != want {
					t.Errorf("%s, want %s", got, want)
				}
				for id, sys := range nodes {
					if sys.Running() != 0 || sys.Free() != actors.DefaultSlots {
						t.Errorf("%s: %d runs execute, %d slots are free", id, sys.Running(), sys.Free())
					}
				}
			})
		})
	}
}

// TestLingerStops: what ends the run, or the node, ends its lingering at once,
// and the execution writes nothing.
func TestLingerStops(t *testing.T) {
	cases := map[string]struct {
		deadline time.Duration
		stop     func(t *testing.T, sys *actors.System, k session.Key)
		state    run.State
		wrote    []string // after it began to wait
	}{
		"cancel": {
			stop: func(t *testing.T, sys *actors.System, k session.Key) {
				signalled(t, sys, run.Signal{To: k, Run: "r1", Cancel: &run.CancelRequested{Reason: "test"}})
			},
			state: run.Cancelled, wrote: []string{"1 run.cancel_requested run.ended"},
		},
		"deadline": {
			deadline: time.Second,
			stop: func(t *testing.T, sys *actors.System, k session.Key) {
				time.Sleep(time.Second)
				synctest.Wait()
				signalled(t, sys, run.Signal{To: k, Run: "r1", Tick: true})
			},
			state: run.TimedOut, wrote: []string{"1 run.ended"},
		},
		"rebudget": {
			stop: func(t *testing.T, sys *actors.System, k session.Key) {
				signalled(t, sys, run.Signal{To: k, Run: "r1", Rebudget: &run.Rebudgeted{Budget: run.Budget{Steps: 50}, Reason: "test"}})
				signalled(t, sys, respond(k, "r1", "yes"))
			},
			state: run.Queued, wrote: []string{"1 run.rebudgeted", "1 run.received"},
		},
		"drain": {
			stop: func(t *testing.T, sys *actors.System, _ session.Key) {
				if err := sys.Drain(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
			state: run.Waiting,
		},
		"quarantine": {
			stop: func(t *testing.T, sys *actors.System, k session.Key) {
				signalled(t, sys, run.Signal{To: k, Quarantine: &run.Quarantined{Reason: "test"}})
				signalled(t, sys, respond(k, "r1", "yes"))
			},
			state: run.Queued, wrote: []string{"1 run.quarantined", "1 run.received"},
		},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, w, k := &faults{}, &asking{}, key("s1")
				sys := w.host(t, log, actors.Options{})
				asked := task("r1", k)
				if tt.deadline > 0 {
					asked.Deadline = time.Now().Add(tt.deadline)
				}
				accepted(t, sys, asked)
				synctest.Wait()
				before, began := len(kinds(t, log, k)), time.Now()
				tt.stop(t, sys, k)
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := sys.Drain(ctx); err != nil {
					t.Error(err)
				}
				if d := time.Since(began); d > tt.deadline {
					t.Errorf("it stayed for %v", d)
				}
				if r := state(t, log, k, "r1"); r.State != tt.state {
					t.Errorf("it is %s, want %s", r.State, tt.state)
				}
				if got := kinds(t, log, k)[before:]; !slices.Equal(got, tt.wrote) {
					t.Errorf("the log got %q, want %q", got, tt.wrote)
				}
				if want := []string{"n1 forward", "n1 before"}; !slices.Equal(w.done(), want) {
					t.Errorf("executed %q", w.done())
				}
			})
		})
	}
}

// TestLingerTwoAnswers: of two that come at once, in one commit, the first wakes
// the run and the other is refused or lies in its inbox.
func TestLingerTwoAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w, k := &faults{}, &asking{}, key("s1")
		sys := w.host(t, log, actors.Options{})
		accepted(t, sys, task("r1", k))
		synctest.Wait()
		log.set(func() { log.latency = 100 * time.Millisecond })
		word := func(text string) run.Signal {
			return run.Signal{To: k, Run: "r1", Received: &run.Received{ID: text, Kind: run.Message, Text: text}}
		}
		errs := make([]error, 4)
		var all sync.WaitGroup
		for i, sig := range []run.Signal{word("first"), respond(k, "r1", "yes"), respond(k, "r1", "no"), word("last")} {
			all.Go(func() { errs[i] = sys.Signal(t.Context(), sig) })
			synctest.Wait()
		}
		all.Wait()
		time.Sleep(time.Minute)
		if errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], run.ErrState) || errs[3] != nil {
			t.Errorf("answers: %v", errs)
		}
		got := kinds(t, log, k)
		if want := "1 run.received run.claimed run.received"; !slices.Contains(got, want) || resumes(t, log, k) != 0 {
			t.Errorf("the log got %q, want %q in it; %d offers", got, want, resumes(t, log, k))
		}
		if r := state(t, log, k, "r1"); r.State != run.Succeeded || r.Attempt != 2 || wakes(t, log, k) != "1:n1#1 5:wake1 5:n1#2" {
			t.Errorf("it %s as attempt %d: %s", r.State, r.Attempt, wakes(t, log, k))
		}
	})
}

// TestLingerAndDie: the process dies with the commit that brings the answer. The
// claim in it is that of a run under way: whoever finds the holder dead goes on.
func TestLingerAndDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w, k := &faults{}, &asking{}, key("s1")
		dead := false
		deliver := func(context.Context, string, run.Work) (actors.Answer, error) {
			return "", errors.New("nobody answers")
		}
		n1 := w.host(t, log, actors.Options{Drain: time.Second})
		accepted(t, n1, task("r1", k))
		synctest.Wait()
		log.set(func() {
			log.after = func(_ int, c session.Commit) error {
				if c.Epoch > 1 {
					return nil
				}
				dead = true // what it wrote is stored, and it never hears of it
				return fmt.Errorf("a test: %w", session.ErrUnavailable)
			}
			log.append = func(_ int, c session.Commit) error {
				if dead && strings.Contains(c.Events[0].Data, `"n1"`) { // of another activation
					return fmt.Errorf("a test: %w", session.ErrUnavailable)
				}
				return nil
			}
		})
		if err := n1.Signal(t.Context(), respond(k, "r1", "yes")); err == nil {
			t.Fatal("the answer is acknowledged")
		}
		if n := resumes(t, log, k); n != 0 || wakes(t, log, k) != "1:n1#1 4:wake1 4:n1#2" {
			t.Errorf("%d offers, %s", n, wakes(t, log, k))
		}
		n2 := w.host(t, log, actors.Options{Incarnation: "n2", Deliver: deliver, Alive: func(string) bool { return false }})
		accepted(t, n2, offerOf("r1", k)) // as the sweep of an orphan does
		synctest.Wait()
		if r := state(t, log, k, "r1"); r.State != run.Succeeded || r.Attempt != 3 {
			t.Errorf("it %s as attempt %d", r.State, r.Attempt)
		}
		if want := []string{"n1 forward", "n1 before", "n2 forward", "n2 after"}; !slices.Equal(w.done(), want) {
			t.Errorf("executed %q", w.done())
		}
	})
}

// TestLingerInDoubt: nobody knows what became of the commit with answer and
// claim. If it is in the log, or comes late, the run goes on here by itself,
// because nobody else would take up what a live node claimed. If not, it never
// will be.
func TestLingerInDoubt(t *testing.T) {
	for _, lands := range []string{"at once", "late", "too late"} {
		t.Run(lands, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, w, k := &faults{}, &asking{}, key("s1")
				sys := w.host(t, log, actors.Options{})
				accepted(t, sys, task("r1", k))
				synctest.Wait()
				e, err := log.Last(t.Context(), k)
				if err != nil {
					t.Fatal(err)
				}
				var lost *session.Commit
				land := func() error {
					_, err := log.MemoryLog.Append(t.Context(), e.At, *lost)
					return err
				}
				log.set(func() {
					log.append = func(_ int, c session.Commit) error {
						switch {
						case lost == nil && lands != "at once":
							lost = &c
							return fmt.Errorf("a test: %w", session.ErrUnavailable)
						case lands == "late" && c.Seq == lost.Seq:
							return land()
						}
						return nil
					}
					log.after = func(_ int, c session.Commit) error {
						if lost == nil {
							lost = &c
							return fmt.Errorf("a test: %w", session.ErrUnavailable)
						}
						return nil
					}
				})
				if err := sys.Signal(t.Context(), respond(k, "r1", "yes")); !errors.Is(err, session.ErrUnavailable) {
					t.Fatalf("the answer: %v", err)
				}
				time.Sleep(time.Minute)
				r := state(t, log, k, "r1")
				if lands != "too late" {
					if r.State != run.Succeeded || r.Attempt != 3 {
						t.Errorf("it %s as attempt %d: %q", r.State, r.Attempt, kinds(t, log, k))
					}
					return
				}
				if err := land(); r.State != run.Waiting || !errors.Is(err, session.ErrConflict) {
					t.Errorf("it is %s, and the lost commit comes with %v", r.State, err)
				}
				signalled(t, sys, respond(k, "r1", "yes")) // whoever sent it sends it again
				synctest.Wait()
				if r := state(t, log, k, "r1"); r.State != run.Queued || resumes(t, log, k) != 1 {
					t.Errorf("it is %s, offered %d times", r.State, resumes(t, log, k))
				}
			})
		})
	}
}
