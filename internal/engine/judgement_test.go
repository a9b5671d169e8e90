package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// answers is a model that gives one answer after the other and repeats the last one, and
// stores the requests.
type answers struct {
	all  []llm.Response
	seen []llm.Request
}

func (a *answers) Client(context.Context, llm.Provider) (llm.Client, error) { return a, nil }

func (a *answers) Complete(_ context.Context, r *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
	resp := a.all[min(len(a.seen), len(a.all)-1)]
	a.seen = append(a.seen, *r)
	resp.Usage, resp.Model = session.Usage{Input: 10, Output: 5}, "m"
	resp.Calls = slices.Clone(resp.Calls)
	if resp.Text != "" {
		sink(llm.Delta{Text: resp.Text})
	}
	return &resp, nil
}

func saying(text string) llm.Response { return llm.Response{Text: text, Finish: llm.FinishStop} }

func calling(f llm.Finish, text string, args ...string) llm.Response {
	r := llm.Response{Text: text, Finish: f}
	for i, a := range args {
		r.Calls = append(r.Calls, session.ToolCall{ID: fmt.Sprint("c", i), Name: "note", Args: a})
	}
	return r
}

// TestEndOfAnswer: an agent ends with a whole answer that has text. It continues a cut or
// paused one, asks again for an empty one and for calls that never came or were written
// as text, carries out no call of a cut answer, and ends with a code if that does not
// help. The records show all of it, and an execution that replays them has the same end.
func TestEndOfAnswer(t *testing.T) {
	cut := llm.Response{Text: "half ", Finish: llm.FinishLength}
	paused := llm.Response{Text: "so far ", Finish: llm.FinishPause}
	empty, missing := saying(""), llm.Response{Finish: llm.FinishTools}
	spelt := saying("<tool_call>\n{\"name\": \"note\", \"arguments\": {\"text\": \"x\"}}\n</tool_call>")
	call := calling(llm.FinishTools, "", `{"text":"x"}`)
	refused := llm.Response{Text: "I will not", Finish: llm.FinishRefused}
	odd := llm.Response{Text: "done", Finish: llm.FinishStop, Word: "eos_token"}
	for _, tt := range []struct {
		name    string
		answers []llm.Response
		rounds  int
		text    string // of the session's last row
		code    run.Code
		again   string // of the steps of the model
		made    int    // calls
	}{
		{name: "a word of the server's own", answers: []llm.Response{odd}, text: "done", again: "stop"},
		{name: "cut and continued", answers: []llm.Response{cut, saying("and half")}, text: "half and half", again: "length:cut stop"},
		{name: "cut three times", answers: []llm.Response{cut, cut, cut, saying("end")}, text: "half half half end", again: "length:cut length:cut length:cut stop"},
		{name: "cut for ever", answers: []llm.Response{cut}, text: "half half half half ", code: run.CodeTruncated, again: "length:cut length:cut length:cut length!truncated"},
		{name: "cut in the last round", answers: []llm.Response{cut}, rounds: 1, text: "half ", code: run.CodeTruncated, again: "length!truncated"},
		{name: "cut within its thoughts", answers: []llm.Response{{Finish: llm.FinishLength, Reasoning: "hm"}}, text: "go", code: run.CodeTruncated, again: "length!truncated"},
		{name: "cut within thoughts written as text", answers: []llm.Response{{Finish: llm.FinishLength, Text: "<think>hm"}}, text: "go", code: run.CodeTruncated, again: "length!truncated"},
		{name: "cut, then whole without more", answers: []llm.Response{cut, empty}, text: "half ", again: "length:cut stop"},
		{name: "cut, then calls", answers: []llm.Response{cut, call, saying("done")}, text: "done", again: "length:cut tool_calls stop", made: 1},
		{name: "paused", answers: []llm.Response{paused, saying("done")}, text: "so far done", again: "pause:paused stop"},
		{name: "paused for ever", answers: []llm.Response{paused}, text: strings.Repeat("so far ", 9), code: run.CodeTruncated, again: strings.Repeat("pause:paused ", 8) + "pause!truncated"},
		{name: "calls of a paused answer", answers: []llm.Response{calling(llm.FinishPause, "", `{"text":"x"}`), saying("done")}, text: "done", again: "pause stop", made: 1},
		{name: "refused", answers: []llm.Response{refused}, text: "go", code: run.CodeRefused, again: "refusal!refused"},
		{name: "refused with calls", answers: []llm.Response{calling(llm.FinishRefused, "", `{"text":"x"}`)}, text: "go", code: run.CodeRefused, again: "refusal!refused"},
		{name: "filtered", answers: []llm.Response{{Text: "The way to", Finish: llm.FinishFilter}}, text: "go", code: run.CodeFiltered, again: "content_filter!filtered"},
		{name: "empty", answers: []llm.Response{empty, saying("done")}, text: "done", again: "stop:empty stop"},
		{name: "white space", answers: []llm.Response{saying(" \n"), saying("done")}, text: "done", again: "stop:empty stop"},
		{name: "empty for ever", answers: []llm.Response{empty}, text: "go", code: run.CodeEmpty, again: "stop:empty stop:empty stop!empty"},
		{name: "empty behind calls", answers: []llm.Response{call, empty, saying("done")}, text: "done", again: "tool_calls stop:empty stop", made: 1},
		{name: "calls that never came", answers: []llm.Response{missing, call, saying("done")}, text: "done", again: "tool_calls:missing tool_calls stop", made: 1},
		{name: "words, and calls that never came", answers: []llm.Response{{Text: "I look.", Finish: llm.FinishTools}, saying("done")}, text: "done", again: "tool_calls:missing stop"},
		{name: "calls that never come", answers: []llm.Response{missing}, text: "go", code: run.CodeEmpty, again: "tool_calls:missing tool_calls:missing tool_calls!empty"},
		{name: "a call as text", answers: []llm.Response{spelt, call, saying("done")}, text: "done", again: "stop:text tool_calls stop", made: 1},
		{name: "a call as text for ever", answers: []llm.Response{spelt}, text: "go", code: run.CodeEmpty, again: "stop:text stop!empty"},
		{name: "thoughts as text", answers: []llm.Response{saying("<think>\nsecret plan\n</think>\n\nThe answer is 4.")}, text: "The answer is 4.", again: "stop"},
		{name: "cut calls", answers: []llm.Response{calling(llm.FinishLength, "", `{"text":"x"}`, `{"text":"y`), saying("done")}, text: "done", again: "length:calls stop"},
		{name: "a cut call that looks whole", answers: []llm.Response{calling(llm.FinishLength, "I write.", `{"text":"x"}`), call, saying("done")}, text: "done", again: "length:calls tool_calls stop", made: 1},
		{name: "cut calls for ever", answers: []llm.Response{calling(llm.FinishLength, "", `{"text":"y`)}, code: run.CodeTruncated, again: "length:calls length:calls length:calls length!truncated"},
		{name: "cut arguments of a whole answer", answers: []llm.Response{calling(llm.FinishTools, "", `{"text":"x"}`, `{"text":"y`), saying("done")}, text: "done", again: "tool_calls:calls stop"},
		{name: "wrong arguments", answers: []llm.Response{calling(llm.FinishTools, "", `{"text":"x"}`, `{}{"text":"y"}`), saying("done")}, text: "done", again: "tool_calls stop", made: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			made := 0
			a := &flow.Agent{Name: "writer", MaxRounds: tt.rounds, Tools: []tool.Tool{
				tool.Func("note", "Notes.", func(_ context.Context, in wordsIn) (string, error) { made++; return in.Text, nil }, &tool.FuncOptions{Effect: tool.Idempotent}),
			}}
			var w world
			var end session.Session
			m := &answers{all: tt.answers}
			forward := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				s, err := a.Forward(ctx, s)
				end = s
				return s, err
			})
			_, _, state, err := w.run1(t, m, forward, nil)
			want := run.Succeeded
			if tt.code != "" {
				want = run.Failed
			}
			if state != want || run.CodeOf(err) != tt.code && !(err == nil && tt.code == "") {
				t.Fatalf("the run is %s, want %s: %s %v", state, want, run.CodeOf(err), err)
			}
			if made != tt.made {
				t.Errorf("%d calls were carried out, want %d", made, tt.made)
			}
			var steps []string
			ended := facts[journal.Ended](t, &w, journal.KindEnded)[0]
			finish := "none"
			for _, d := range facts[journal.StepCompleted](t, &w, journal.KindStepCompleted) {
				if d.Kind != journal.StepModel {
					continue
				}
				text := d.Finish
				if d.Again != "" {
					text += ":" + d.Again
				}
				if d.Code != "" {
					text += "!" + string(d.Code)
				}
				steps, finish = append(steps, text), d.Finish
				if tt.name == "a word of the server's own" && d.Word != "eos_token" {
					t.Errorf("the record has the word %q", d.Word)
				}
			}
			if word := tt.answers[len(tt.answers)-1].Word; ended.Finish != finish || ended.Word != word || ended.Code != tt.code {
				t.Errorf("the run ends with %q, in the server's word %q, code %q; want %q, %q, %q", ended.Finish, ended.Word, ended.Code, finish, word, tt.code)
			}
			if got := strings.Join(steps, " "); got != tt.again {
				t.Errorf("the steps of the model are %s, want %s", got, tt.again)
			}
			if last, _ := end.At(end.Len() - 1); tt.text != "" && last.Text() != tt.text {
				t.Errorf("the session ends with %q, want %q", last.Text(), tt.text)
			}
			legal(t, m.seen)
		})
	}
}

// legal checks the requirements of every server on a request: each call is directly
// followed by its result, and the last message is not the assistant's unless the server
// paused.
func legal(t *testing.T, seen []llm.Request) {
	t.Helper()
	for n, r := range seen {
		open := 0
		for i, m := range r.Messages {
			if open > 0 && m.Role != llm.Tool {
				t.Errorf("request %d: message %d follows a call without a result", n, i)
			}
			if open += len(m.Calls); m.Role == llm.Tool {
				open--
			}
			if m.Role == llm.Assistant && strings.TrimSpace(m.Text) == "" && len(m.Calls) == 0 {
				t.Errorf("request %d: message %d is an empty answer", n, i)
			}
			if m.Role == llm.Tool && m.Failed != strings.Contains(m.Text, `"ok":false`) {
				t.Errorf("request %d: result %d is marked %v: %s", n, i, m.Failed, m.Text)
			}
		}
		if last := r.Messages[len(r.Messages)-1]; last.Role == llm.Assistant && !strings.HasPrefix(last.Text, "so far") {
			t.Errorf("request %d ends with an answer", n)
		}
	}
}
