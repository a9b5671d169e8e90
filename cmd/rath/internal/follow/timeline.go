package follow

import (
	"cmp"
	"context"
	"time"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Timeline returns handlers that write the timeline of a run, with a note of what its
// model is writing.
func Timeline(ctx context.Context, a *app.App, t *view.Timeline, note func(string)) Handlers {
	var step run.Path
	var text string
	return Handlers{
		Record: func(r lineage.Record) {
			t.Add(ctx, r)
			if r.Kind == lineage.Model && r.Step == step || r.Kind == lineage.Ended {
				text = ""
				note("")
			}
		},
		Delta: func(d messages.Delta) {
			if d.Step != step {
				step, text = d.Step, ""
			}
			text += d.Reasoning + d.Text
			if d.Call != nil {
				text += d.Call.Name + d.Call.Args
			}
			text = text[max(len(text)-liveText, 0):]
			who := term.Line(cmp.Or(d.Agent, "the model"), 24)
			room := max(a.Err.Width()-term.Width(who)-10, 10)
			note("    " + who + "  " + endOf(term.Line(text, liveText), room))
		},
		Idle: func(d time.Duration) {
			if d > 5*idleEvery {
				t.Release(ctx)
			}
		},
	}
}

// liveText is how many bytes of what a model is writing are kept to be shown.
const liveText = 400

// endOf returns the end of a text that takes at most width columns.
func endOf(s string, width int) string {
	for i := range s {
		if term.Width(s[i:]) <= width {
			return s[i:]
		}
	}
	return ""
}
