package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestStepIsFlat: a step behind 10,000 chunks takes at most 1.2 times as long as one
// behind 100. Rounds of both alternate, the quickest turns count, and a few more rounds
// are played if the bound is exceeded, so that other load on the machine counts for
// neither.
func TestStepIsFlat(t *testing.T) {
	const turns, rounds, most = 100, 3, 15
	took := map[int][]time.Duration{}
	quick := func(n int) time.Duration {
		slices.Sort(took[n])
		return took[n][len(took[n])/10]
	}
	var few, many time.Duration
	for round := 1; round <= most && (round <= rounds || many*10 > few*12); round++ {
		for _, n := range []int{100, 10_000} {
			rows := make([]session.Chunk, n)
			for i := range rows {
				rows[i] = session.UserText(fmt.Sprint("row ", i, strings.Repeat(" and more of it", 5)))
			}
			asked, last := 0, time.Time{}
			m := model(func(*llm.Request) *llm.Response {
				now := time.Now()
				if asked++; asked > 2 { // the first one renders the existing chunks
					took[n] = append(took[n], now.Sub(last))
				}
				last = now
				if asked > turns {
					return &llm.Response{Text: "done", Finish: llm.FinishStop}
				}
				return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{{ID: fmt.Sprint("c", asked), Name: "words", Args: `{"text":"a"}`}}}
			})
			agent := &flow.Agent{Name: "a", Tools: []tool.Tool{words}, MaxRounds: turns + 2}
			if _, err := (&inprocess.Runtime{Runtime: engine.Runtime{Models: m}}).Run(t.Context(), agent, session.New(rows...)); err != nil {
				t.Fatal(err)
			}
		}
		few, many = quick(100), quick(10_000)
	}
	t.Logf("a turn takes %v behind 100 chunks and %v behind 10,000", few, many)
	if many*10 > few*12 {
		t.Errorf("a turn takes %v behind 100 chunks and %v behind 10,000", few, many)
	}
}
