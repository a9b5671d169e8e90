package start

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/fleet"
	"github.com/rathcluster/rath/internal/workflows/demo"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestFleetDemoTellsTheFanOutFirst: the nodes of the branches are printed after the
// fan-out, also if their records overtake its own.
func TestFleetDemoTellsTheFanOutFirst(t *testing.T) {
	var out bytes.Buffer
	a := app.New("rath", nil, &out, &out, func(string) string { return "" })
	d := &fleetDemo{demonstration: &demonstration{App: a}, nodes: &fleet.Fleet{}, atOnce: len(demo.Coders), id: "r", branches: map[run.ID]*fleetBranch{}}
	for _, name := range demo.Coders {
		d.record(&messages.Record{Kind: messages.KindSubmitted, Run: run.ID("r-" + name), Name: name, BranchOf: &messages.Place{Run: "r"}})
		d.record(&messages.Record{Kind: messages.KindClaimed, Run: run.ID("r-" + name), Node: "n-" + name, Attempt: 1})
	}
	d.record(&messages.Record{Kind: messages.KindFannedOut, Run: "r"})
	var told []string
	for line := range strings.Lines(out.String()) {
		told = append(told, strings.Fields(line)[0])
	}
	if got := strings.Join(told, " "); got != "fan-out careful hasty radical" {
		t.Errorf("it tells\n%s", out.String())
	}
}
