package scripted

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

func newModel(t testing.TB, script string, o *Options) *Model {
	t.Helper()
	s := must.Get(Parse("test", []byte(script)))(t)
	m := must.Get(New(s, o))(t)
	return m
}

// talk builds a request from "role: text" lines; "call: name" lines are calls
// of the assistant message before, "tool name: text" answers one.
func talk(lines ...string) *llm.Request {
	r := &llm.Request{}
	for _, l := range lines {
		head, text, _ := strings.Cut(l, ": ")
		role, name, _ := strings.Cut(head, " ")
		switch role {
		case "call":
			m := &r.Messages[len(r.Messages)-1]
			m.Calls = append(m.Calls, session.ToolCall{ID: "id-" + text, Name: text, Args: "{}"})
		case "tool":
			r.Messages = append(r.Messages, llm.Message{Role: llm.Tool, CallID: "id-" + name, Text: text})
		default:
			r.Messages = append(r.Messages, llm.Message{Role: llm.Role(role), Text: text})
		}
	}
	return r
}

func TestConditions(t *testing.T) {
	request := talk(
		"system: You are S.", "user: first", "assistant: looking", "call: old", "tool old: stale",
		"user: second", "assistant: ", "call: search", "call: read", "tool search: found it", "tool read: page",
	)
	request.Tools = []llm.ToolSpec{{Name: "search"}}
	request.Provider.Model = "m1"
	request.StepKey = "run1/2.fast.0/3"
	for cond, want := range map[string]bool{
		"model: m1": true, "model: m": false,
		"system: are S": true, "system: first": false,
		"user: second": true, "user: first": false,
		"tool: page": true, "tool: found": false,
		"last: page": true, "last: second": false,
		"contains: first": true, "contains: You are": false, "contains: stale": true,
		"result: search": true, "result: read": true, "result: old": false,
		"offers: search": true, "offers: read": false,
		"turn: 3": true, "turn: 2": false,
		"round: 2": true, "round: 3": false,
		"attempt: 3": true, "attempt: 1": false,
		"try: 1": true, "try: 2": false,
	} {
		for not, want := range map[string]bool{"": want, "not ": !want} {
			m := newModel(t, "-- it --\n"+not+cond+"\n\nyes\n-- else --\n\nno\n", nil)
			resp := must.Get(m.Complete(t.Context(), request, nil))(t)
			if got := resp.Text == "yes"; got != want {
				t.Errorf("%s%s: got %v", not, cond, got)
			}
		}
	}
}

func TestConversation(t *testing.T) {
	m, err := New(research(t), nil)
	must.Do(t, err)
	ctx := t.Context()
	plan := talk("system: You are the planner.", "user: go")
	plan.StepKey = "r/1/1"
	_, err = m.Complete(ctx, plan, nil)
	e, ok := errors.AsType[*llm.Error](err)
	if !ok || e.Code != llm.CodeOverloaded || e.Status != 503 || e.RetryAfter != 1500*time.Millisecond || e.Message != "The planner is busy." {
		t.Fatalf("got %#v", err)
	}
	plan.StepKey = "r/1/2"
	resp, err := m.Complete(ctx, plan, nil)
	must.Do(t, err)
	want := &llm.Response{Text: "1. search\n2. write", Finish: llm.FinishStop, Model: "scripted", Usage: session.Usage{Input: 40, Output: 6, CacheRead: 32}}
	if diff := cmp.Diff(want, resp); diff != "" {
		t.Error(diff)
	}

	r := talk("system: You are the researcher.", "user: what is it?")
	var joined llm.Response
	calls := map[int]*session.ToolCall{}
	n := 0
	first, err := m.Complete(ctx, r, func(d llm.Delta) {
		n++
		joined.Text += d.Text
		joined.Reasoning += d.Reasoning
		if c := d.Call; c != nil {
			if calls[d.Index] == nil {
				calls[d.Index] = &session.ToolCall{}
			}
			calls[d.Index].ID += c.ID
			calls[d.Index].Name += c.Name
			calls[d.Index].Args += c.Args
		}
	})
	must.Do(t, err)
	if n != 6+3+3 || joined.Reasoning != first.Reasoning || first.Finish != llm.FinishTools {
		t.Errorf("%d deltas, %+v", n, first)
	}
	for i, c := range first.Calls {
		if *calls[i] != c {
			t.Errorf("call %d: streamed %+v, returned %+v", i, *calls[i], c)
		}
	}
	if first.Calls[0].ID != "c1" || first.Calls[1].ID == "" {
		t.Errorf("ids: %+v", first.Calls)
	}
	again, err := m.Complete(ctx, r, nil)
	if diff := cmp.Diff(first, again); diff != "" || err != nil {
		t.Errorf("the same request got another answer: %v %s", err, diff)
	}

	r.Messages = append(
		r.Messages, first.Message(),
		llm.Message{Role: llm.Tool, CallID: "c1", Name: "web_search", Text: "hits"},
		llm.Message{Role: llm.Tool, CallID: first.Calls[1].ID, Text: "notes"},
	)
	second, err := m.Complete(ctx, r, nil)
	if err != nil || second.Finish != llm.FinishLength || !strings.HasPrefix(second.Text, "Durable execution is a journal\nand") {
		t.Errorf("%+v, %v", second, err)
	}

	for text, want := range map[string]string{"be shy": "You said: be shy", "say nothing": "", "hello": "You said: hello", "show a section": "-- not a section --\n\ttrailing newline\n"} {
		if text == "be shy" { // once
			if _, err := m.Complete(ctx, talk("user: "+text), nil); !errors.Is(err, llm.CodeRateLimited) {
				t.Errorf("first time: %v", err)
			}
		}
		if resp, err := m.Complete(ctx, talk("user: "+text), nil); err != nil || resp.Text != want {
			t.Errorf("%s: %+v, %v", text, resp, err)
		}
	}
	if resp, err := m.Complete(ctx, talk("user: break the arguments"), nil); err != nil || resp.Calls[0].Args != `{"q":` {
		t.Errorf("%+v, %v", resp, err)
	}
}

func TestNoRuleSaysWhy(t *testing.T) {
	m := newModel(t, "-- a --\nuser: tea\n\nx\n-- b --\nnot last: coffee\n\nx\n", nil)
	_, err := m.Complete(t.Context(), talk("user: I want coffee"), nil)
	want := `llm: invalid_request: script test has no rule for turn 1, whose last message is (user) "I want coffee"; rules: a (not user "tea"), b (last "coffee")`
	if err == nil || err.Error() != want || llm.Retryable(err) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	m = newModel(t, "-- a --\n\nx\n", &Options{Models: []string{"m1"}})
	r := talk("user: x")
	r.Provider.Model = "m2"
	if _, err := m.Complete(t.Context(), r, nil); !errors.Is(err, llm.CodeModelNotFound) {
		t.Error(err)
	}
}

func TestFaultsInProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for fault, want := range map[string]struct {
			code   llm.Code
			deltas int
			took   time.Duration
		}{
			faultHang:     {llm.CodeTimeout, 0, DefaultHang},
			faultDrop:     {llm.CodeUnavailable, 0, 0},
			faultHTML:     {llm.CodeMalformed, 0, 0},
			faultStall:    {llm.CodeIdleTimeout, 2, DefaultHang},
			faultTruncate: {llm.CodeTruncated, 2, 0},
			faultAbort:    {llm.CodeTruncated, 2, 0},
			faultGarbage:  {llm.CodeMalformed, 2, 0},
			faultError:    {llm.CodeUnavailable, 2, 0},
		} {
			m := newModel(t, "-- a --\nfault: "+fault+"\n\none two three four\n", nil)
			n, start := 0, time.Now()
			resp, err := m.Complete(t.Context(), talk("user: x"), func(llm.Delta) { n++ })
			if resp != nil || !errors.Is(err, want.code) || !llm.Retryable(err) || n != want.deltas || time.Since(start) != want.took {
				t.Errorf("%s: %+v, %v, %d deltas, %v", fault, resp, err, n, time.Since(start))
			}
		}
		m := newModel(t, "-- a --\nfault: error\ncode: overloaded\n\none two\n", nil)
		if _, err := m.Complete(t.Context(), talk("user: x"), nil); !errors.Is(err, llm.CodeOverloaded) {
			t.Error(err)
		}
	})
}

func TestDelayGapAndCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, "-- a --\nuser: own\ndelay: 2s\ngap: 3s\n\na b c\n-- b --\n\na b c\n", &Options{Delay: 50 * time.Millisecond, Gap: time.Millisecond})
		for text, want := range map[string]time.Duration{"own": 8 * time.Second, "other": 52 * time.Millisecond} {
			start := time.Now()
			if _, err := m.Complete(t.Context(), talk("user: "+text), func(llm.Delta) {}); err != nil || time.Since(start) != want {
				t.Errorf("%s: %v after %v", text, err, time.Since(start))
			}
		}
		cause := errors.New("enough")
		for _, after := range []time.Duration{0, time.Second, 4 * time.Second} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(after, func() { cancel(cause) })
			start := time.Now()
			_, err := m.Complete(ctx, talk("user: own"), func(llm.Delta) {})
			if !errors.Is(err, cause) || llm.CodeOf(err) != "" || time.Since(start) != after {
				t.Errorf("%v: %v after %v", after, err, time.Since(start))
			}
		}
	})
}

type flushed struct {
	bytes.Buffer
	flushes int
	err     error
}

func (f *flushed) Write(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return f.Buffer.Write(p)
}

func (f *flushed) Flush() error { f.flushes++; return nil }

func TestWitnessLog(t *testing.T) {
	var log flushed
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := newModel(t, "-- tea --\nuser: tea\n\nx\n-- bad --\nuser: bad\nstatus: 500\n-- hang --\nuser: hang\nfault: drop\n",
		&Options{Log: &log, Now: func() time.Time { return now }})
	request := func(text string) *llm.Request {
		r := talk("user: " + text)
		r.StepKey, r.Provider.Model = "run/"+text+"/1", "m"
		return r
	}
	for _, text := range []string{"tea", "bad", "hang", "coffee"} {
		_, err := m.Complete(t.Context(), request(text), func(llm.Delta) {
			if log.flushes != 1 {
				t.Error("answered before the log was flushed")
			}
		})
		if (err == nil) != (text == "tea") {
			t.Errorf("%s: %v", text, err)
		}
	}
	want := []Entry{
		{Rule: "tea", Status: 200, Stream: true, Step: "run/tea/1", Digest: Digest(request("tea").Messages)},
		{Rule: "bad", Status: 500, Stream: true, Step: "run/bad/1", Digest: Digest(request("bad").Messages)},
		{Rule: "hang", Status: 0, Stream: true, Step: "run/hang/1", Fault: faultDrop, Digest: Digest(request("hang").Messages)},
		{Rule: "", Status: 400, Stream: true, Step: "run/coffee/1", Digest: Digest(request("coffee").Messages)},
	}
	var got []Entry
	dec := json.NewDecoder(&log)
	for dec.More() {
		var e Entry
		must.Do(t, dec.Decode(&e))
		got = append(got, e)
	}
	for i := range want {
		want[i].Time, want[i].Via, want[i].Model, want[i].Messages = now, "process", "m", 1
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	log.err = errors.New("disk full")
	if _, err := m.Complete(t.Context(), request("tea"), nil); !errors.Is(err, llm.CodeUnavailable) || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("an unlogged request was answered: %v", err)
	}
}

func TestRecord(t *testing.T) {
	s := research(t)
	m := must.Get(New(s, nil))(t)
	recorded := &Script{Name: "recorded"}
	run := func(c llm.Client, record bool) (texts []string) {
		r := talk("system: You are the researcher.\nBe brief.", "user: what is it?\nreally")
		for i := range 2 {
			resp := must.Get(c.Complete(t.Context(), r, nil))(t)
			if record {
				recorded.Record(string(rune('a'+i)), r, resp)
			}
			data := must.Get(json.Marshal(resp))(t)
			texts = append(texts, string(data))
			r.Messages = append(r.Messages, resp.Message())
			for _, c := range resp.Calls {
				r.Messages = append(r.Messages, llm.Message{Role: llm.Tool, CallID: c.ID, Text: "result"})
			}
		}
		return texts
	}
	want := run(m, true)
	data := must.Get(recorded.Format())(t)
	replay := newModel(t, string(data), nil)
	if diff := cmp.Diff(want, run(replay, false)); diff != "" {
		t.Errorf("%s\n%s", diff, data)
	}
}

// TestRecordKeepsTimes: a rule keeps its author's times, even if an answer at the same
// place is recorded after it.
func TestRecordKeepsTimes(t *testing.T) {
	s := must.Get(Parse("own", []byte("-- own --\nturn: 1\nlast: tea\ntimes: 3\n\ngreen\n")))(t)
	s.Record("recorded", talk("user: tea"), &llm.Response{Text: "black"})
	m := must.Get(New(s, nil))(t)
	var texts []string
	for range 5 {
		resp := must.Get(m.Complete(t.Context(), talk("user: tea"), nil))(t)
		texts = append(texts, resp.Text)
	}
	if diff := cmp.Diff([]string{"green", "green", "green", "black", "black"}, texts); diff != "" {
		t.Error(diff)
	}
}

func BenchmarkComplete(b *testing.B) {
	m := newModel(b, "-- a --\n\nHello there, how are you today?\n", nil)
	r := talk("system: x", "user: hello")
	b.ReportAllocs()
	for b.Loop() {
		must.Get(m.Complete(b.Context(), r, nil))(b)
	}
}
