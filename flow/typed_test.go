package flow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/inprocess"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/session"
)

type verdict struct {
	Score int    `json:"score" jsonschema:"0 to 10"`
	Why   string `json:"why"`
}

// asked runs a workflow that asks a script for a verdict.
func asked(script string) (v verdict, s session.Session, err error) {
	parsed, err := scripted.Parse("model", []byte(script))
	if err != nil {
		return v, s, err
	}
	model, err := scripted.New(parsed, nil)
	if err != nil {
		return v, s, err
	}
	judge := &flow.Agent{Name: "judge"}
	w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		var err error
		s, v, err = flow.Ask[verdict](ctx, s, judge)
		return s, err
	})
	s, err = (&inprocess.Runner{Models: model}).Run(context.Background(), w, session.New(session.UserText("Judge this.")))
	return v, s, err
}

// An answer that has the form of a Go type.
func ExampleAsk() {
	v, s, err := asked("-- a --\nturn: 1\n\nI give it a seven.\n-- b --\nturn: 2\n\n{\"score\": 7, \"why\": \"short\"}\n")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(v.Score, v.Why)
	for _, c := range s.Chunks() {
		first, _, _ := strings.Cut(c.Text(), "\n")
		fmt.Printf("%s: %s\n", c.Kind(), first)
	}
	// Output:
	// 7 short
	// user: Judge this.
	// assistant: I give it a seven.
	// user: That answer cannot be used: it is not JSON: invalid character 'I' looking for beginning of value
	// assistant: {"score": 7, "why": "short"}
}

// TestAsk: an answer is checked, and a wrong one repaired at most twice.
func TestAsk(t *testing.T) {
	for name, tt := range map[string]struct {
		answers []string
		score   int
		says    string // the error
		rows    int
	}{
		"right at once":      {[]string{`{"score": 7, "why": "x"}`}, 7, "", 2},
		"in a fence":         {[]string{"Here:\n```json\n{\"score\": 7, \"why\": \"x\"}\n```"}, 7, "", 2},
		"a whole float":      {[]string{`{"score": 7.0, "why": "x"}`}, 7, "", 2},
		"a field is missing": {[]string{`{"score": 7}`, `{"score": 8, "why": "x"}`}, 8, "", 4},
		"twice wrong":        {[]string{`[]`, `{"score": "seven", "why": "x"}`, `{"score": 9, "why": "x"}`}, 9, "", 6},
		"always wrong":       {[]string{`no`, `{"score": 1, "why": "x", "more": 1}`, "none"}, 0, "agent judge, asked 3 times", 6},
	} {
		t.Run(name, func(t *testing.T) {
			var script strings.Builder
			for i, a := range tt.answers {
				fmt.Fprintf(&script, "-- a%d --\nturn: %d\n\n%s\n", i, i+1, a)
			}
			v, s, err := asked(script.String())
			if tt.says == "" && (err != nil || v.Score != tt.score || s.Len() != tt.rows) {
				t.Errorf("%+v, %d rows, %v", v, s.Len(), err)
			}
			if tt.says != "" && (!errors.Is(err, flow.ErrAnswer) || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestWorkflowToolNeedsAWorkflow: without a workflow WorkflowTool panics, not the call.
func TestWorkflowToolNeedsAWorkflow(t *testing.T) {
	defer func() {
		if got := recover(); got != "flow: the tool review has no workflow" {
			t.Errorf("it panics with %v", got)
		}
	}()
	flow.WorkflowTool("review", "Reviews.", nil)
}
