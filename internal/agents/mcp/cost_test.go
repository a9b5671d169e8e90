package mcp_test

import (
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/agents/mcp"
	"github.com/rathcluster/rath/internal/testkit/mcptest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/tool"
)

// connTool is a tool of a connection, as an agent has it.
type connTool struct {
	c    *mcp.Conn
	spec tool.Spec
}

func (t connTool) Spec() tool.Spec { return t.spec }

func (t connTool) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	return t.c.Call(ctx, t.spec.Name, c)
}

// TestCallCost: a call, with checked arguments and a converted result, takes at most twice
// as long as one by the SDK alone to the same server. Both alternate in one run; the figure
// is the slowest of the fastest tenth of each.
func TestCallCost(t *testing.T) {
	c := connect(t, server(t, "good", ""))
	specs, _ := must.Pair(c.Tools(t.Context()))(t)
	i := slices.IndexFunc(specs, func(s tool.Spec) bool { return s.Name == "s__echo" })
	table := must.Get(tool.NewTable(connTool{c, specs[i]}))(t)
	var argv []string
	must.Do(t, json.Unmarshal([]byte(mcptest.Command("good")), &argv))
	alone := must.Get(sdk.NewClient(&sdk.Implementation{Name: "alone"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: exec.Command(argv[0], argv[1:]...)}, nil))(t)
	defer alone.Close()

	const calls = 500
	args, blobs := `{"text":"hello"}`, blob.NewMemory()
	var ours, theirs []time.Duration
	for range calls {
		began := time.Now()
		o := table.Call(t.Context(), "s__echo", args, tool.Call{ID: "r/1", Blobs: blobs})
		ours = append(ours, time.Since(began))
		if o.Err != nil || string(o.Body) != `{"text":"you said hello"}` {
			t.Fatalf("%s, %v", o.Body, o.Err)
		}
		began = time.Now()
		_, err := alone.CallTool(t.Context(), &sdk.CallToolParams{Name: "echo", Arguments: json.RawMessage(args)})
		theirs = append(theirs, time.Since(began))
		must.Do(t, err)
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	// The medians vary with the load of the machine: 0.9 to 1.7 times.
	a, b := ours[calls/10], theirs[calls/10]
	t.Logf("a fast call takes %v, %v by the SDK alone: %.2fx", a, b, float64(a)/float64(b))
	if a > 2*b {
		t.Errorf("a fast call takes %v, more than twice the %v of the SDK alone", a, b)
	}
}
