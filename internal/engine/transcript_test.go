package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// requests is a model that calls a tool for some turns and stores its requests.
type requests struct {
	turns int
	asked []llm.Request
}

func (m *requests) Client(context.Context, llm.Provider) (llm.Client, error) { return m, nil }

func (m *requests) Complete(_ context.Context, r *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	m.asked = append(m.asked, *r)
	if m.turns--; m.turns < 0 {
		return &llm.Response{Text: "done", Finish: llm.FinishStop}, nil
	}
	return &llm.Response{Text: "I look <again> & again.", Finish: llm.FinishTools, Calls: []session.ToolCall{
		{ID: fmt.Sprint("c", m.turns), Name: "words", Args: `{"text":"a b"}`}, {ID: fmt.Sprint("d", m.turns), Name: "none", Args: "{}"},
	}}, nil
}

// shownAs lists the messages of a request by role, call and beginning.
func shownAs(r llm.Request) (all []string) {
	for _, m := range r.Messages {
		var line strings.Builder
		line.WriteString(fmt.Sprintf("%s %s%s", m.Role, m.CallID, m.Text[:min(len(m.Text), 12)]))
		for _, c := range m.Calls {
			line.WriteString(" " + c.ID)
		}
		all = append(all, line.String())
	}
	return all
}

// TestRequestsGoOn: each request of an agent extends the previous one, recalled notes
// keep their place, and the record of the step has the digest of the whole request.
func TestRequestsGoOn(t *testing.T) {
	notes := notebook.New(nil)
	uri, err := notebook.NoteURI(notebook.User, "lessons", "x/1")
	if err != nil {
		t.Fatal(err)
	}
	check(t, notes.Write(t.Context(), uri, "issue seven is about words", memory.Origin{}))
	m := &requests{turns: 2}
	rt := &inprocess.Runtime{Runtime: engine.Runtime{
		Models: m,
		Memory: func(context.Context, session.Tenant, string) (memory.Store, error) { return notes, nil },
	}}
	agent := &flow.Agent{Name: "a", Prompt: "You work.", Tools: []tool.Tool{words}, Memory: "m"}
	var id run.ID
	s, err := rt.Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		i, _ := flow.RunInfo(ctx)
		id = i.Run
		s, _, err := flow.CallTool(ctx, s, words, wordsIn{"one two three"})
		if err != nil {
			return s, err
		}
		return agent.Forward(ctx, s.With(session.UserText("more about issue seven")))
	}), session.New(session.SystemText("Be brief."), session.UserText("issue seven")))
	if err != nil {
		t.Fatal(err)
	}
	first := []string{
		"system You work.", "system Be brief.", "user issue seven", "user Result of wo", "user more about i", "user Notes from m",
	}
	second := append(slices.Clone(first), "assistant I look <agai c1 d1", "tool c12", `tool d1{"ok":false,`)
	third := append(slices.Clone(second), "assistant I look <agai c0 d0", "tool c02", `tool d0{"ok":false,`)
	for i, want := range [][]string{first, second, third} {
		if got := shownAs(m.asked[i]); !slices.Equal(got, want) {
			t.Errorf("request %d:\n%s\nwant\n%s", i, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	h, err := rt.Runtime.Values.Recording(t.Context(), s.Key(), id)
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for _, st := range h.Journal.Recorded() {
		if st.Kind != journal.StepModel {
			continue
		}
		r := m.asked[i]
		rendered, err := json.Marshal([]any{r.Messages, r.Tools, r.Provider})
		if err != nil || st.Prompt != blob.Sum(rendered) {
			t.Errorf("step %s is recorded with prompt %s, its request has %s, %v", st.Path, st.Prompt.Short(), blob.Sum(rendered).Short(), err)
		}
		i++
	}
	if i != 3 {
		t.Errorf("%d model calls are recorded", i)
	}
}

// TestTurnIsFlat: the allocations of an agent's turn do not depend on the number of rows
// before it.
func TestTurnIsFlat(t *testing.T) {
	const turns = 50
	perTurn := map[int]uint64{}
	for _, n := range []int{10, 2_000} {
		rows := make([]session.Chunk, n)
		for i := range rows {
			rows[i] = session.UserText(fmt.Sprint("row ", i, strings.Repeat(" and more of it", 20)))
		}
		var began runtime.MemStats
		asked := 0
		m := model(func(*llm.Request) *llm.Response {
			if asked++; asked == 2 { // the first one renders the existing rows
				runtime.ReadMemStats(&began)
			}
			if asked > turns+1 {
				return &llm.Response{Text: "done", Finish: llm.FinishStop}
			}
			return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{{ID: fmt.Sprint("c", asked), Name: "words", Args: `{"text":"a"}`}}}
		})
		agent := &flow.Agent{Name: "a", Tools: []tool.Tool{words}, MaxRounds: turns + 2}
		if _, err := (&inprocess.Runtime{Runtime: engine.Runtime{Models: m}}).Run(t.Context(), agent, session.New(rows...)); err != nil {
			t.Fatal(err)
		}
		var ended runtime.MemStats
		runtime.ReadMemStats(&ended)
		perTurn[n] = (ended.TotalAlloc - began.TotalAlloc) / turns
	}
	t.Logf("%d B a turn behind 10 rows, %d behind 2,000", perTurn[10], perTurn[2_000])
	if perTurn[2_000] > perTurn[10]*3/2 {
		t.Errorf("a turn allocates %d B behind 10 rows and %d B behind 2,000", perTurn[10], perTurn[2_000])
	}
}
