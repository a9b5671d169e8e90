package shop

import (
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

func TestMain(m *testing.M) { flowtest.Main(m) }

var request = session.New(session.UserText("Two packets of tea, please."))

func TestBuys(t *testing.T) {
	s := newShop()
	v := flowtest.Run(t, newBuyer(s), request, "model.txtar", nil)
	if got, want := v.Text(), "Two packets of tea are on their way."; got != want {
		t.Errorf("the agent said %q, want %q", got, want)
	}
	last, _ := v.Last(session.ToolResult)
	if got, want := last.Text(), `{"number":1,"cents":640}`; got != want {
		t.Errorf("the order's result is %s, want %s", got, want)
	}
}

// TestOrdersOnce crashes the agent at each of its commits, also between an
// order and the record of it. The shop stands outside and sees all of it: each
// time the order comes in again it has the same key, so it is one.
func TestOrdersOnce(t *testing.T) {
	s := newShop()
	flowtest.CrashEverywhere(t, func() flow.Workflow { return newBuyer(s) }, request, "model.txtar", nil)
	if len(s.orders) != 1 {
		t.Errorf("the shop has %d orders, want 1", len(s.orders))
	}
}

// TestUnknownArticle checks the model's view of an invalid request.
func TestUnknownArticle(t *testing.T) {
	table := must.Get(tool.NewTable(newShop().tools()...))(t)
	got := table.Call(t.Context(), "price", `{"article":"gold"}`, tool.Call{})
	if !got.IsError || !strings.Contains(string(got.Body), "there are tea and coffee") {
		t.Errorf("the model reads %s", got.Body)
	}
	if got := table.Call(t.Context(), "price", `{"thing":"tea"}`, tool.Call{}); got.Kind != tool.InvalidArguments {
		t.Errorf("arguments that break the schema are %q: %s", got.Kind, got.Body)
	}
}
