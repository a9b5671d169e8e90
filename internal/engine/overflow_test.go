package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/agents/guide"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/chain"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// bounded is a model that makes a number of calls of the tool "fetch" and rejects
// requests above a size in bytes.
type bounded struct {
	t        *testing.T
	most     int
	sums     int // of a request for a summary, if it is not 0
	calls    int // that it makes
	made     int
	asked    int
	refused  int
	summed   int
	cached   int64
	requests []int // bytes
}

func (b *bounded) Client(context.Context, llm.Provider) (llm.Client, error) { return b, nil }

func (b *bounded) Complete(_ context.Context, r *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	size, open := 0, map[string]bool{}
	for _, m := range r.Messages {
		size += len(m.Text)
		for _, c := range m.Calls {
			size += len(c.Args)
			open[c.ID] = true
		}
		if m.Role == llm.Tool && !open[m.CallID] {
			b.t.Errorf("the result of %s stands without its call", m.CallID)
		}
		if m.Role == llm.Tool {
			delete(open, m.CallID)
		}
	}
	if len(open) > 0 {
		b.t.Errorf("%d calls stand without their results", len(open))
	}
	b.asked++
	b.requests = append(b.requests, size)
	usage := session.Usage{Input: int64(size) / 4, Output: 10, CacheRead: min(b.cached, int64(size)/4)}
	last := r.Messages[len(r.Messages)-1].Text
	switch {
	case size > b.most || b.sums > 0 && size > b.sums && strings.HasPrefix(last, "Summarise"):
		b.refused++
		return nil, &llm.Error{Code: llm.CodeContextLength, Message: fmt.Sprintf("%d bytes are too many", size)}
	case strings.HasPrefix(last, "Summarise"):
		b.summed++
		if len(r.Tools) > 0 {
			b.t.Error("a summary is asked for with tools")
		}
		return &llm.Response{Text: fmt.Sprintf("summary %d: the task is to fetch", b.summed) + strings.Repeat(", and so it went on", 10), Finish: llm.FinishStop, Usage: usage}, nil
	case b.made == b.calls:
		return &llm.Response{Text: "all fetched", Finish: llm.FinishStop, Usage: usage}, nil
	}
	if r.Messages[0].Text != "You fetch." || !slices.ContainsFunc(r.Messages[:3], func(m llm.Message) bool { return m.Role == llm.System && m.Text == "be polite" }) {
		b.t.Errorf("the request begins with %+v", r.Messages[:3])
	}
	b.made++
	return &llm.Response{Finish: llm.FinishTools, Usage: usage, Calls: []session.ToolCall{{ID: fmt.Sprint("c", b.made), Name: "fetch", Args: fmt.Sprintf(`{"text":"%d"}`, b.made)}}}, nil
}

// fetcher is an agent whose tool returns n bytes.
func fetcher(n int) *flow.Agent {
	fetch := tool.Func("fetch", "Fetches.", func(_ context.Context, in wordsIn) (string, error) {
		return in.Text + " " + strings.Repeat("x", n), nil
	}, &tool.FuncOptions{Effect: tool.ReadOnly})
	return &flow.Agent{Name: "fetcher", Prompt: "You fetch.", Tools: []tool.Tool{fetch}, MaxRounds: 1000}
}

// TestOverflow: a session that does not fit into the model's context, by the limit of the
// node's list, of the agent, or of the server alone, is compressed, and the agent
// continues with the newest calls and their results unchanged.
func TestOverflow(t *testing.T) {
	for name, tt := range map[string]struct {
		choices func(llm.Provider) ([]chain.Choice, error)
		max     int64
		sums    int
		refused bool
	}{
		"the list":   {choices: offering(chain.Choice{Name: "m", Context: 20_000})},
		"the agent":  {max: 20_000},
		"the server": {refused: true},
		"the server, which takes less for a summary": {refused: true, sums: 6000},
	} {
		t.Run(name, func(t *testing.T) {
			var w world
			m := &bounded{t: t, most: 80_000, sums: tt.sums, calls: 60}
			a := fetcher(3000)
			a.MaxContext = tt.max
			polite := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				return a.Forward(ctx, s.With(session.SystemText("be polite"), session.UserText("fetch all")))
			})
			rt, ex, state, err := w.run1(t, m, polite, func(rt *inprocess.Runtime, _ *journal.Task) { rt.Runtime.Choices = tt.choices })
			if err != nil || state != run.Succeeded || ex.Result().Text() != "all fetched" {
				t.Fatalf("the run is %s and says %q: %v", state, ex.Result().Text(), err)
			}
			if m.made != 60 || m.summed < 2 || (m.refused > 0) != tt.refused {
				t.Errorf("%d calls, %d summaries, %d requests refused: %v", m.made, m.summed, m.refused, m.requests)
			}
			all := texts(ex.Result())
			if all[0] != "be polite" || all[1] != "fetch all" || !strings.HasPrefix(all[2], fmt.Sprintf("summary %d", m.summed)) {
				t.Errorf("the session begins with %.60q", all[:3])
			}
			decided := 0
			for _, s := range w.steps(t, home) {
				if s.Kind == journal.StepDo && s.Name == "overflow" {
					decided++
					t.Log(s.Summary)
				}
			}
			if decided != m.summed {
				t.Errorf("%d decisions are recorded, want %d", decided, m.summed)
			}
			again := flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow {
				return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
					return polite(ctx, s.With(session.UserText("go")))
				})
			}}
			rt.Runtime.Choices = nil // the node's present list does not matter
			asked := m.asked
			if r := must(engine.Replay(t.Context(), &rt.Runtime, again, home, "r")); !r.Matches() || m.asked != asked {
				t.Errorf("the replay says %q", r.Differs)
			}
			if u := ex.Result().Usage(); u.Calls != int64(m.asked-m.refused) {
				t.Errorf("the session counts %d calls, the model was asked %d times and refused %d", u.Calls, m.asked, m.refused)
			}
		})
	}
}

// TestWarmContextIsGivenUpLate: with a prompt in the provider's cache an agent waits
// longer before it compresses, and the record has the cost of that.
func TestWarmContextIsGivenUpLate(t *testing.T) {
	price := func(u session.Usage) int64 { return 10*(u.Input-u.CacheRead) + u.CacheRead }
	first := map[int64]int{}
	for _, cached := range []int64{0, 1 << 40} {
		var w world
		m := &bounded{t: t, most: 1 << 30, calls: 40, cached: cached}
		a := fetcher(3000)
		polite := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			return a.Forward(ctx, s.With(session.SystemText("be polite"), session.UserText("fetch all")))
		})
		_, _, state, err := w.run1(t, m, polite, func(rt *inprocess.Runtime, _ *journal.Task) {
			rt.Runtime.Choices = offering(chain.Choice{Name: "m", Context: 30_000, Cost: "priced", Price: price})
		})
		if err != nil || state != run.Succeeded {
			t.Fatalf("the run is %s: %v", state, err)
		}
		for _, s := range w.steps(t, home) {
			if s.Kind == journal.StepDo && s.Name == "overflow" && first[cached] == 0 {
				first[cached] = m.requests[0]
				for _, n := range m.requests {
					if n < first[cached] {
						break
					}
					first[cached] = n
				}
				if want := cached > 0; strings.Contains(s.Value, "cached") != want || strings.Contains(s.Value, "micro_usd") != want {
					t.Errorf("the decision is recorded as %s", s.Value)
				}
			}
		}
	}
	if cold, warm := first[0], first[1<<40]; cold == 0 || warm <= cold || warm > 4*27_000 {
		t.Errorf("it was given up at %d bytes cold and %d warm", cold, warm)
	}
}

// TestOverflowOfItsOwn: an author's workflow returns the session with which the agent
// continues; if it returns the session unchanged, the server's error ends the agent.
func TestOverflowOfItsOwn(t *testing.T) {
	for name, tt := range map[string]struct {
		w     flow.Workflow
		state run.State
	}{
		"compresses": {&flow.Compressor{Name: "c", Instruction: "Summarise it.", Keep: 1000}, run.Succeeded},
		"nothing":    {flow.EmptyWorkflow{}, run.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			var w world
			m := &bounded{t: t, most: 40_000, calls: 30}
			a := fetcher(3000)
			a.Overflow = tt.w
			polite := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				return a.Forward(ctx, s.With(session.SystemText("be polite"), session.UserText("fetch all")))
			})
			_, _, state, err := w.run1(t, m, polite, nil)
			if state != tt.state || (err != nil) != (tt.state == run.Failed) {
				t.Errorf("the run is %s: %v", state, err)
			}
		})
	}
}

// TestHundredCallsInALongSession: an agent makes 100 calls in a session of 200,000 tokens
// and is compressed on the way; the size of a call's record does not grow with the
// session.
func TestHundredCallsInALongSession(t *testing.T) {
	var w world
	m := &bounded{t: t, most: 1_000_000, calls: 100, cached: 1 << 40}
	a := fetcher(4000)
	long := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		s = s.With(session.SystemText("be polite"))
		for i := range 200 {
			s = s.With(session.UserText(fmt.Sprint(i, " ", strings.Repeat("y", 4000))))
		}
		return a.Forward(ctx, s)
	})
	_, ex, state, err := w.run1(t, m, long, func(rt *inprocess.Runtime, _ *journal.Task) {
		rt.Runtime.Choices = offering(chain.Choice{Name: "m", Context: 280_000})
	})
	if err != nil || state != run.Succeeded || ex.Result().Text() != "all fetched" || m.summed == 0 || m.requests[0] < 800_000 {
		t.Fatalf("the run is %s after %d calls, %d summaries, a first request of %d bytes: %v", state, m.made, m.summed, m.requests[0], err)
	}
	var stored []int // by call, with the answer before it
	sum := 0
	for e, err := range w.Read(t.Context(), home, commitlog.Position{}) {
		check(t, err)
		sum += len(e.Raw)
		for _, ev := range e.Commit.Events {
			if ev.Kind != journal.KindStepCompleted {
				continue
			}
			switch must(journal.Decode[journal.StepCompleted](ev)).Kind {
			case journal.StepTool:
				stored = append(stored, sum)
				sum = 0
			case journal.StepJoin, journal.StepCompress, journal.StepDo:
				sum = 0
			}
		}
	}
	early, late := 0, 0
	for i := range 20 {
		early, late = early+stored[1+i], late+stored[80+i]
	}
	if len(stored) != 100 || late*20 > early*21 {
		t.Errorf("%d calls: 20 early ones stored %d bytes, 20 late ones %d", len(stored), early, late)
	}
	t.Logf("20 early calls stored %d bytes, 20 late ones %d", early, late)
}

// TestTaskIsNotCompressed: the user's newest message and the workspace's instructions
// stay unchanged, an agent with no other content is asked as is, and a task that does not
// fit alone ends it with a remedy.
func TestTaskIsNotCompressed(t *testing.T) {
	ofWorkspace := (&guide.Guide{Agents: "Use tabs."}).Text()
	task := "fetch all " + strings.Repeat(" page by page,", 464)
	for name, tt := range map[string]struct {
		most, calls, context int
		state                run.State
	}{
		"it alone fits":   {most: 8000, context: 2000, state: run.Succeeded},
		"with calls":      {most: 9500, calls: 12, context: 2300, state: run.Succeeded},
		"it is too large": {most: 4000, context: 1000, state: run.Failed},
		"for the server":  {most: 4000, state: run.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			var w world
			m := &bounded{t: t, most: tt.most, calls: tt.calls}
			a := fetcher(500)
			f := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				return a.Forward(ctx, s.With(session.SystemText("be polite"), session.UserText(ofWorkspace), session.UserText(task)))
			})
			_, ex, state, err := w.run1(t, m, f, func(rt *inprocess.Runtime, _ *journal.Task) {
				if tt.context > 0 {
					rt.Runtime.Choices = offering(chain.Choice{Name: "m", Context: int64(tt.context)})
				}
			})
			if state != tt.state || (m.summed > 0) != (tt.calls > 0) || m.made != tt.calls {
				t.Fatalf("the run is %s after %d calls and %d summaries of requests of %v: %v", state, m.made, m.summed, m.requests, err)
			}
			if tt.state == run.Failed {
				if err == nil || !errors.Is(err, llm.CodeContextLength) || !strings.Contains(err.Error(), "put it into a file") {
					t.Errorf("the run failed: %v", err)
				}
				return
			}
			all := texts(ex.Result())
			for _, text := range []string{ofWorkspace, task} {
				if !slices.Contains(all, text) {
					t.Errorf("the session holds %.60q", all)
				}
			}
		})
	}
}
