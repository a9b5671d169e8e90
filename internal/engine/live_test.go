package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/chain"
	"github.com/rathcluster/rath/internal/engine/live"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// halting is a model that is rejected once, with a pause that its server requests, writes
// slowly, and then calls a tool.
type halting struct{ asked *int }

func (m halting) Client(context.Context, llm.Provider) (llm.Client, error) { return m, nil }

func (m halting) Complete(_ context.Context, r *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
	if r.Messages[len(r.Messages)-1].Role == llm.Tool {
		return &llm.Response{Text: "done", Finish: llm.FinishStop}, nil
	}
	if *m.asked++; *m.asked == 1 {
		r.Waits(time.Now().Add(time.Minute))
		time.Sleep(10 * time.Second)
		return nil, &llm.Error{Code: llm.CodeRateLimited, Message: "slow down", RetryAfter: 20 * time.Second}
	}
	for range 10 {
		time.Sleep(time.Second)
		sink(llm.Delta{Text: strings.Repeat("x", 400) + ". "})
	}
	sink(llm.Delta{Call: &session.ToolCall{ID: "c", Name: "sleep", Args: "{}"}})
	time.Sleep(time.Second)
	return &llm.Response{Calls: []session.ToolCall{{ID: "c", Name: "sleep", Args: "{}"}}, Finish: llm.FinishTools}, nil
}

// TestLive samples the live report of an execution every second.
func TestLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		rt := w.runtime(halting{new(int)})
		sleep := tool.Func("sleep", "Sleeps.", func(ctx context.Context, _ struct{}) (string, error) {
			time.Sleep(time.Minute)
			return "slept", nil
		}, &tool.FuncOptions{Effect: tool.ReadOnly})
		agent := &flow.Agent{Name: "coder", Tools: []tool.Tool{sleep}, Provider: llm.Provider{Model: "m1"}}
		ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
			time.Sleep(5 * time.Second)
			return agent.Forward(ctx, s.With(session.UserText("go")))
		})
		began := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			if state, err := ex.Forward(t.Context()); state != run.Succeeded {
				t.Errorf("state %s: %v", state, err)
			}
		}()
		at := func(when time.Time) string { return fmt.Sprint(when.Sub(began).Round(time.Second)) }
		look := func(after time.Duration) string {
			time.Sleep(time.Until(began.Add(after)))
			synctest.Wait()
			l := ex.Live()
			var text strings.Builder
			fmt.Fprintf(&text, "%v: since %s", after, at(l.Since))
			for _, s := range l.Steps {
				fmt.Fprintf(&text, " [%s %s %s %s %s, since %s, at %s", s.Path, s.Kind, s.Name, s.Model, s.Doing, at(s.Began), at(s.At))
				if !s.Until.IsZero() {
					text.WriteString(", until " + at(s.Until))
				}
				fmt.Fprintf(&text, ", try %d %q, %d of %d bytes, %d tokens, calls %v]", s.Try, s.Error, len(s.Text), s.Bytes, s.Tokens, s.Calls)
				if len(s.Text) > live.MaxText {
					t.Errorf("%d bytes of text", len(s.Text))
				}
			}
			return text.String()
		}
		var got []string
		for _, s := range []time.Duration{1, 6, 16, 38, 45, 46, 60, 120} {
			got = append(got, look(s*time.Second))
		}
		<-done
		want := []string{
			`1s: since 0s`,
			`6s: since 0s [0 model coder m1 asks, since 5s, at 5s, until 1m5s, try 1 "", 0 of 0 bytes, 0 tokens, calls []]`,
			`16s: since 0s [0 model coder m1 pauses, since 5s, at 15s, until 35s, try 1 "llm: rate_limited: slow down", 0 of 0 bytes, 0 tokens, calls []]`,
			`38s: since 0s [0 model coder m1 answers, since 5s, at 38s, try 2 "llm: rate_limited: slow down", 1206 of 1206 bytes, 302 tokens, calls []]`,
			`45s: since 0s [0 model coder m1 answers, since 5s, at 45s, try 2 "llm: rate_limited: slow down", 2048 of 4027 bytes, 1007 tokens, calls [sleep]]`,
			`46s: since 46s [0.0 tool sleep  works, since 46s, at 46s, try 0 "", 0 of 0 bytes, 0 tokens, calls []]`,
			`1m0s: since 46s [0.0 tool sleep  works, since 46s, at 46s, try 0 "", 0 of 0 bytes, 0 tokens, calls []]`,
			`2m0s: since 1m46s`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("what is told (-want +got):\n%s", diff)
		}
	})
}

// TestLiveSilence: signs of life move the time limit for an answer, but not the time
// since the last piece of it.
func TestLiveSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		rt := w.runtime(client(func(_ context.Context, r *llm.Request) (*llm.Response, error) {
			for range 6 {
				r.Waits(time.Now().Add(time.Minute))
				time.Sleep(10 * time.Second)
			}
			return &llm.Response{Text: "done", Finish: llm.FinishStop}, nil
		}))
		ex := start(t, rt, agentOnce)
		began := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			if state, err := ex.Forward(t.Context()); state != run.Succeeded {
				t.Errorf("state %s: %v", state, err)
			}
		}()
		time.Sleep(45 * time.Second)
		synctest.Wait()
		steps := ex.Live().Steps
		if len(steps) != 1 || !steps[0].At.Equal(began) || !steps[0].Until.Equal(began.Add(100*time.Second)) {
			t.Errorf("after 45 s: %+v", steps)
		}
		<-done
	})
}

// full is a limiter that admits a request after a second.
type full struct{}

func (full) Acquire(ctx context.Context, _ string, _ int64) (func(int64), error) {
	select {
	case <-time.After(time.Second):
		return func(int64) {}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// TestLiveLimit: while a call waits for a limit, its report names the model of the list
// with that limit, before the first request to the model and after a failure of another
// one.
func TestLiveLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := chain.Choice{Name: "fast", Provider: llm.Provider{Model: "id-fast"}, Limiter: full{}}
		second := chain.Choice{Name: "careful", Provider: llm.Provider{Model: "id-careful"}, Limiter: full{}}
		var w world
		rt := w.runtime(client(func(_ context.Context, r *llm.Request) (*llm.Response, error) {
			time.Sleep(time.Second)
			if r.Provider.Model == "id-fast" {
				return nil, &llm.Error{Code: llm.CodeAuth}
			}
			return &llm.Response{Text: "done", Finish: llm.FinishStop}, nil
		}))
		rt.Runtime.Choices = offering(first, second)
		ex := start(t, rt, agentOnce)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if state, err := ex.Forward(t.Context()); state != run.Succeeded {
				t.Errorf("state %s: %v", state, err)
			}
		}()
		var got []string
		time.Sleep(time.Second / 2)
		for range 4 {
			for _, s := range ex.Live().Steps {
				got = append(got, string(s.Doing)+" "+s.Model)
			}
			time.Sleep(time.Second)
		}
		<-done
		if diff := cmp.Diff([]string{"waits fast", "asks id-fast", "waits careful", "asks id-careful"}, got); diff != "" {
			t.Errorf("what is told (-want +got):\n%s", diff)
		}
	})
}

// TestDeltasOfTries joins the deltas of answers that break off twice, as a client does.
func TestDeltasOfTries(t *testing.T) {
	script := must(scripted.Parse("script", []byte("-- first --\ntimes: 2\nfault: truncate\n\nThe answer is forty-three, I am quite sure of it\n-- second --\n\nIt is seven.\n")))
	var w world
	rt := w.runtime(must(scripted.New(script, nil)))
	var naive string
	var tries, voids []int
	var last engine.Delta
	rt.Runtime.OnDelta = func(d engine.Delta) {
		naive += d.Text
		if d.Try != last.Try && d.N != 1 || d.Try == last.Try && d.N != last.N+1 {
			t.Errorf("delta %d of try %d after delta %d of try %d", d.N, d.Try, last.N, last.Try)
		}
		if last = d; d.Void {
			voids = append(voids, d.Try)
		} else if d.N == 1 {
			tries = append(tries, d.Try)
		}
	}
	ex := start(t, rt, agentOnce)
	if state, err := ex.Forward(t.Context()); state != run.Succeeded {
		t.Fatalf("state %s: %v", state, err)
	}
	if !strings.Contains(naive, "forty") {
		t.Fatalf("the answer did not break off: %q", naive)
	}
	if diff := cmp.Diff([][]int{{1, 2, 3}, {1, 2}}, [][]int{tries, voids}); diff != "" {
		t.Errorf("tries, and those that broke off (-want +got):\n%s", diff)
	}
}

// TestPartialAnswers: the beginning of an answer is passed on while it streams, as JSON
// for Ask, and is void if the answer breaks off. A replay passes none on.
func TestPartialAnswers(t *testing.T) {
	script := must(scripted.Parse("script", []byte("-- first --\ntimes: 1\nfault: truncate\n\n{\"why\": \"it is much too long\", \"score\": 4}\n-- second --\n\n{\"why\": \"short\", \"score\": 7}\n")))
	var got []string
	a := &flow.Agent{Name: "judge", Hooks: flow.Hooks{Partial: func(text string) { got = append(got, text) }}}
	type verdict struct {
		Why   string `json:"why"`
		Score int    `json:"score"`
	}
	ask := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		s, v, err := flow.Ask[verdict](ctx, s, a)
		if err == nil && v != (verdict{"short", 7}) {
			err = fmt.Errorf("the answer is %+v", v)
		}
		return s, err
	})
	var w world
	rt, _, state, err := w.run1(t, must(scripted.New(script, nil)), ask, nil)
	if err != nil || state != run.Succeeded {
		t.Fatalf("the run is %s: %v", state, err)
	}
	void := slices.Index(got, "")
	if void < 1 || slices.Contains(got[void+1:], "") || !strings.Contains(got[void-1], "it is") || got[len(got)-1] != `{"why": "short", "score": 7}` {
		t.Fatalf("what came is %q", got)
	}
	for i, text := range got {
		if i == void {
			continue
		}
		var v verdict
		if err := json.Unmarshal([]byte(text), &v); err != nil || i > void && !strings.HasPrefix("short", v.Why) {
			t.Errorf("%d: %q, %v", i, text, err)
		}
	}
	n := len(got)
	again := flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			return ask(ctx, s.With(session.UserText("go")))
		})
	}}
	if r := must(engine.Replay(t.Context(), &rt.Runtime, again, home, "r")); !r.Matches() || len(got) != n {
		t.Errorf("the replay says %q, and %d pieces came", r.Differs, len(got)-n)
	}
}

// TestPartialPanics: a panic in Partial fails the run as one in Forward does.
func TestPartialPanics(t *testing.T) {
	var w world
	a := &flow.Agent{Name: "a", Hooks: flow.Hooks{Partial: func(string) { panic("no screen") }}}
	script := must(scripted.Parse("script", []byte("-- one --\n\nIt is seven.\n")))
	_, _, state, err := w.run1(t, must(scripted.New(script, nil)), a, nil)
	if state != run.Failed || err == nil || !strings.Contains(err.Error(), "no screen") {
		t.Errorf("the run is %s: %v", state, err)
	}
}
