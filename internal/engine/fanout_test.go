package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// say adds a chunk through a step, so that it is content of the branch.
func say(text string) flow.Workflow {
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		v, err := flow.Do(ctx, "say", func(context.Context) (string, error) { return text, nil }, tool.NonIdempotent)
		if err != nil {
			return s, err
		}
		return s.With(session.UserText(v)), nil
	})
}

func failing(text string) flow.Workflow {
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		return s, errors.New(text)
	})
}

func texts(s session.Session) []string {
	var all []string
	for _, c := range s.Chunks() {
		all = append(all, c.Text())
	}
	return all
}

func TestFanOutMerge(t *testing.T) {
	var before atomic.Int32
	w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		id, err := flow.Do(ctx, "before", func(context.Context) (int32, error) { return before.Add(1), nil }, tool.NonIdempotent)
		if err != nil {
			return s, err
		}
		s = s.With(session.UserText(fmt.Sprintf("base %d", id)))
		j, err := flow.FanOut(ctx, s, []flow.Branch{
			{Name: "a", Workflow: say("from a")},
			{Name: "bad", Workflow: failing("broken")},
			{Name: "b", Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				return say(fmt.Sprintf("from b after %d", id)).Forward(ctx, s)
			})},
		}, nil)
		if err != nil {
			return s, err
		}
		if len(j.Succeeded()) != 2 || j.Outcomes[1].State != run.Failed || !strings.Contains(fmt.Sprint(j.Outcomes[1].Err), "broken") {
			t.Errorf("the outcomes are %+v", j.Outcomes)
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	})
	rt := &inprocess.Runtime{}
	s := must(rt.Run(t.Context(), w, session.New(session.UserText("go"))))
	want := []string{"go", "base 1", "from a", "from b after 1"}
	if got := texts(s); !slices.Equal(got, want) {
		t.Errorf("the session says %q, want %q", got, want)
	}
	if n := before.Load(); n != 1 {
		t.Errorf("a step before the fan-out ran %d times", n)
	}
}

func TestFanOutNested(t *testing.T) {
	leaf := func(name string) flow.Workflow { return say("leaf " + name) }
	inner := func(name string) flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			s, err := say("in "+name).Forward(ctx, s)
			if err != nil {
				return s, err
			}
			j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "x", Workflow: leaf(name + "x")}, {Name: "y", Workflow: leaf(name + "y")}}, nil)
			if err != nil {
				return s, err
			}
			return flow.Merge(ctx, j, flow.SinceAncestor())
		})
	}
	w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "p", Workflow: inner("p")}, {Name: "q", Workflow: inner("q")}}, nil)
		if err != nil {
			return s, err
		}
		if s, err = flow.Merge(ctx, j, flow.SinceAncestor()); err != nil {
			return s, err
		}
		return say("end").Forward(ctx, s)
	})
	s := must((&inprocess.Runtime{}).Run(t.Context(), w, session.New(session.UserText("go"))))
	want := []string{"go", "in p", "leaf px", "leaf py", "in q", "leaf qx", "leaf qy", "end"}
	if got := texts(s); !slices.Equal(got, want) {
		t.Errorf("the session says %q, want %q", got, want)
	}
}

// TestBranchEnds: a branch ends like any run, also with open branches of its own and with
// another session than its own.
func TestBranchEnds(t *testing.T) {
	m := model(func(*llm.Request) *llm.Response { return &llm.Response{Text: "short", Finish: llm.FinishStop} })
	for name, tc := range map[string]struct {
		f    func(ctx context.Context, s session.Session) (session.Session, error)
		want []string
		warn string
	}{
		"with a fork": {func(ctx context.Context, s session.Session) (session.Session, error) {
			b, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			return say("in the fork").Forward(ctx, b)
		}, []string{"go", "in the fork"}, ""},
		"beside a fork": {func(ctx context.Context, s session.Session) (session.Session, error) {
			b, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			if _, err = say("in the fork").Forward(ctx, b); err != nil {
				return s, err
			}
			return say("beside it").Forward(ctx, s)
		}, []string{"go", "beside it"}, "was not returned by the workflow"},
		"beside a fan-out": {func(ctx context.Context, s session.Session) (session.Session, error) {
			if _, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "x", Workflow: say("x")}}, nil); err != nil {
				return s, err
			}
			return say("beside it").Forward(ctx, s)
		}, []string{"go", "beside it"}, "was not merged"},
		"with a summary": {(&flow.Compressor{Name: "c"}).Forward, []string{"short"}, ""},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			var warned []string
			rt := &inprocess.Runtime{Runtime: engine.Runtime{Models: m, OnWarning: func(_ run.ID, text string) { warned = append(warned, text) }}}
			_, err := rt.Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "a", Workflow: flow.Func(tc.f)}}, nil)
				if err != nil {
					return s, err
				}
				if o := j.Outcomes[0]; o.State != run.Succeeded || !slices.Equal(texts(o.Session), tc.want) {
					t.Errorf("it %s: %v; it says %q, want %q", o.State.Past(), o.Err, texts(o.Session), tc.want)
				}
				return s, errors.New("seen")
			}), session.New(session.UserText("go")))
			if err == nil || !strings.Contains(err.Error(), "seen") {
				t.Error(err)
			}
			if tc.warn == "" && len(warned) > 0 || tc.warn != "" && (len(warned) != 1 || !strings.Contains(warned[0], tc.warn)) {
				t.Errorf("warnings %q", warned)
			}
		})
	}
}

// TestCompressedBranchesComeBack: each policy, and Adopt, takes branches that end in a
// summary. They contribute their whole session instead of additions.
func TestCompressedBranchesComeBack(t *testing.T) {
	m := model(func(*llm.Request) *llm.Response { return &llm.Response{Text: "short", Finish: llm.FinishStop} })
	short := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := say("long").Forward(ctx, s)
		if err != nil {
			return s, err
		}
		return (&flow.Compressor{Name: "c"}).Forward(ctx, s)
	})
	best := func(context.Context, *flow.Joined) (int, []string, error) { return 0, nil, nil }
	for name, tc := range map[string]struct {
		policy flow.Policy
		want   []string
	}{
		"since ancestor": {flow.SinceAncestor(), []string{"go", "short", "plain"}},
		"pick":           {flow.Pick(0), []string{"short"}},
		"best":           {flow.PickBest(best), []string{"short"}},
		"summarise":      {flow.Summarise(&flow.Compressor{Name: "s"}), []string{"go", "short"}},
		"adopt":          {nil, []string{"short", "more"}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			got, err := (&inprocess.Runtime{Runtime: engine.Runtime{Models: m}}).Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				if tc.policy == nil {
					b, err := flow.Fork(ctx, s)
					if err == nil {
						b, err = short.Forward(ctx, b)
					}
					if err == nil {
						s, err = flow.Adopt(ctx, s, b, "it is short")
					}
					if err != nil {
						return s, err
					}
					return say("more").Forward(ctx, s)
				}
				j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "short", Workflow: short}, {Name: "plain", Workflow: say("plain")}}, nil)
				if err != nil {
					return s, err
				}
				return flow.Merge(ctx, j, tc.policy)
			}), session.New(session.UserText("go")))
			if err != nil || !slices.Equal(texts(got), tc.want) {
				t.Errorf("the session says %q, %v; want %q", texts(got), err, tc.want)
			}
		})
	}
}

func TestFanOutFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Do(ctx, "slow", func(ctx context.Context) (int, error) {
				select {
				case <-ctx.Done():
					return 0, ctx.Err()
				case <-time.After(time.Hour):
					return 1, nil
				}
			}, tool.ReadOnly)
			return s, err
		})
		w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "slow", Workflow: slow}, {Name: "quick", Workflow: say("quick")}},
				&flow.FanOutOptions{First: true})
			if err != nil {
				return s, err
			}
			if j.Outcomes[0].State != run.Cancelled {
				t.Errorf("the slow branch is %s", j.Outcomes[0].State)
			}
			return flow.Merge(ctx, j, flow.Pick(-1))
		})
		began := time.Now()
		s := must((&inprocess.Runtime{}).Run(t.Context(), w, session.New(session.UserText("go"))))
		if got := texts(s); !slices.Equal(got, []string{"go", "quick"}) {
			t.Errorf("the session says %q", got)
		}
		if d := time.Since(began); d > time.Minute {
			t.Errorf("it took %s", d)
		}
	})
}

func TestApproveAndSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			if err := flow.Sleep(ctx, 48*time.Hour); err != nil {
				return s, err
			}
			a, err := flow.Approve(ctx, "Publish?", &flow.AwaitOptions{Timeout: time.Hour})
			if run.IsControl(err) {
				return s, err
			}
			if !errors.Is(err, run.ErrExpired) {
				t.Errorf("without an answer: %+v, %v", a, err)
			}
			return s.With(session.UserText("went on")), nil
		})
		began := time.Now()
		s := must((&inprocess.Runtime{}).Run(t.Context(), w, session.New(session.UserText("go"))))
		if got := texts(s); !slices.Equal(got, []string{"go", "went on"}) {
			t.Errorf("the session says %q", got)
		}
		if d := time.Since(began); d < 49*time.Hour || d > 50*time.Hour {
			t.Errorf("it took %s", d)
		}
	})
}

// TestAdoptPendingReplayed: a branch is adopted with an edit that no step had committed,
// and the run continues after a wait.
func TestAdoptPendingReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			branch, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			if s, err = flow.Adopt(ctx, s, branch.With(session.UserText("better")), "it is better"); err != nil {
				return s, err
			}
			return s, flow.Sleep(ctx, time.Hour)
		})
		s := must((&inprocess.Runtime{}).Run(t.Context(), w, session.New(session.UserText("go"))))
		if got := texts(s); !slices.Equal(got, []string{"go", "better"}) {
			t.Errorf("the session says %q", got)
		}
	})
}

// TestFanOutWide: 256 branches ask a model; their requests share every byte up to the
// branch's own message, so that a provider's cache serves them.
func TestFanOutWide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var requests []string
		m := client(func(ctx context.Context, r *llm.Request) (*llm.Response, error) {
			raw, err := json.Marshal(r.Messages)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			requests = append(requests, string(raw))
			mu.Unlock()
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return &llm.Response{Text: "ok", Finish: llm.FinishStop}, nil
		})
		agent := &flow.Agent{Name: "a", Prompt: "You answer."}
		var bs []flow.Branch
		for i := range 256 {
			bs = append(bs, flow.Branch{Name: fmt.Sprintf("n%03d", i), Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				return agent.Forward(ctx, s.With(session.UserText(fmt.Sprintf("part %03d", i))))
			})})
		}
		w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			j, err := flow.FanOut(ctx, s, bs, nil)
			if err != nil {
				return s, err
			}
			return flow.Merge(ctx, j, flow.SinceAncestor())
		})
		began := time.Now()
		s := must((&inprocess.Runtime{Runtime: engine.Runtime{Models: m}}).Run(t.Context(), w, session.New(session.UserText(strings.Repeat("context ", 500)))))
		if n := s.Len(); n != 1+2*256 {
			t.Errorf("the session has %d chunks", n)
		}
		if d := time.Since(began); d > 75*time.Millisecond {
			t.Errorf("256 branches of 50 ms took %s of model time", d)
		}
		shared := strings.Index(requests[0], "part ")
		for _, r := range requests {
			if len(requests) != 256 || shared < 4000 || r[:shared] != requests[0][:shared] {
				t.Fatalf("%d requests; one begins with %.80q", len(requests), r)
			}
		}
	})
}

// TestFanOutOverOwnLog: a program that keeps its own log passes its commits to the
// runtime, and gets an error if it does not.
func TestFanOutOverOwnLog(t *testing.T) {
	for _, passed := range []bool{true, false} {
		log := &commitlog.Memory{}
		values := journal.NewValues(log)
		rt := &inprocess.Runtime{Runtime: engine.Runtime{Values: values}}
		o := &journal.StoreOptions{Values: values}
		if passed {
			o.OnCommit = rt.Committed
		}
		rt.Runtime.Store = journal.NewStore(log, o)
		s, err := rt.Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "a", Workflow: say("from a")}}, nil)
			if err != nil {
				return s, err
			}
			return flow.Merge(ctx, j, flow.SinceAncestor())
		}), session.New(session.UserText("go")))
		switch {
		case passed && (err != nil || s.Len() != 2):
			t.Errorf("%d chunks: %v", s.Len(), err)
		case !passed && (err == nil || !strings.Contains(err.Error(), "OnCommit")):
			t.Errorf("a run that cannot go on ended with %v", err)
		}
	}
}

// distant is a log with a delay.
type distant struct{ *commitlog.Memory }

const distance = 10 * time.Millisecond

func (d distant) Read(ctx context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	time.Sleep(distance)
	return d.Memory.Read(ctx, k, after)
}

// TestGatherReadsSideBySide: the results of branches that ran elsewhere are read
// concurrently, and returned in the order of the branches.
func TestGatherReadsSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wide = 64
		var bs []flow.Branch
		for i := range wide {
			bs = append(bs, flow.Branch{Name: fmt.Sprint("n", i), Workflow: say(fmt.Sprint("part ", i))})
		}
		var id run.ID
		var took time.Duration
		w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			info, _ := flow.RunInfo(ctx)
			began := time.Now()
			j, err := flow.FanOut(ctx, s, bs, nil)
			if err != nil {
				return s, err
			}
			id, took = info.Run, time.Since(began)
			for i, o := range j.Outcomes {
				if o.Name != bs[i].Name || !slices.Equal(texts(o.Session), []string{"go", fmt.Sprint("part ", i)}) {
					t.Errorf("outcome %d is %s with %q", i, o.Name, texts(o.Session))
				}
			}
			return flow.Merge(ctx, j, flow.Pick(0)) // the log does not name the values of the others
		})
		log := &commitlog.Memory{}
		there := &inprocess.Runtime{Runtime: engine.Runtime{Values: journal.NewValues(log)}}
		there.Runtime.Store = journal.NewStore(log, &journal.StoreOptions{Values: there.Runtime.Values, OnCommit: there.Committed})
		s, err := there.Run(t.Context(), w, session.New(session.UserText("go")))
		if err != nil {
			t.Fatal(err)
		}
		took = 0
		here := &inprocess.Runtime{Runtime: engine.Runtime{Values: journal.NewValues(distant{log})}}
		r, err := engine.Replay(t.Context(), &here.Runtime, flow.Registration{Name: "run", New: func() flow.Workflow { return w }}, s.Key(), id)
		if err != nil || !r.Matches() {
			t.Fatalf("%+v, %v", r, err)
		}
		if took < distance || took > 10*distance {
			t.Errorf("reading %d branches took %v, one read %v", wide, took, distance)
		}
	})
}

// TestPoliciesLeaveNothing: the fork on which a policy decides is disposed of, even if
// the policy fails.
func TestPoliciesLeaveNothing(t *testing.T) {
	answer := func(text string) llm.Models {
		return model(func(*llm.Request) *llm.Response { return &llm.Response{Text: text, Finish: llm.FinishStop} })
	}
	broken := model(func(*llm.Request) *llm.Response {
		return &llm.Response{Calls: []session.ToolCall{{ID: "c", Name: "nosuch", Args: "{}"}}, Finish: llm.FinishTools}
	})
	judge := flow.PickBest((&flow.Agent{Name: "j", MaxRounds: 1}).Judge)
	summary := flow.Summarise(&flow.Compressor{Name: "c"})
	for name, tt := range map[string]struct {
		models llm.Models
		policy flow.Policy
		want   []string
	}{
		"summary":            {answer("short"), summary, []string{"go", "short"}},
		"summary of nothing": {broken, summary, []string{"go", "long"}},
		"judge":              {answer("1"), judge, []string{"go", "longer"}},
		"judge in a loop":    {broken, judge, []string{"go", "long"}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			rt := &inprocess.Runtime{Runtime: engine.Runtime{Models: tt.models, OnWarning: func(_ run.ID, text string) { t.Errorf("warned: %s", text) }}}
			s, err := rt.Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "a", Workflow: say("long")}, {Name: "b", Workflow: say("longer")}}, nil)
				if err != nil {
					return s, err
				}
				merged, err := flow.Merge(ctx, j, tt.policy)
				if err != nil {
					return flow.Merge(ctx, j, flow.Pick(0))
				}
				return merged, nil
			}), session.New(session.UserText("go")))
			if got := texts(s); err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("it says %q, want %q: %v", got, tt.want, err)
			}
		})
	}
}
