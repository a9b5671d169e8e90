package follow

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/evidence/events"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Timeline returns handlers that write the timeline of a run. On a terminal they show
// below it the output of its model as it is written, and the run's progress in
// silences.
func Timeline(ctx context.Context, w *term.Writer, t *view.Timeline) Handlers {
	h := Writing(w)
	record := h.Record
	h.Record = func(r messages.Record) {
		t.Add(ctx, r)
		record(r)
	}
	h.Idle = func(d time.Duration) {
		if d > 5*idleEvery {
			t.Release(ctx)
		}
	}
	return h
}

// Writing returns handlers that show on a terminal, below everything else, the output
// of a run's model as it is written, and the run's progress in silences. The output of
// an aborted try is removed again. Without a terminal the handlers show nothing.
func Writing(w *term.Writer) Handlers {
	var step run.Path
	var draft events.Draft
	h := Handlers{
		Record: func(r messages.Record) {
			if r.Kind == messages.KindModel && r.Step == step || r.Kind == messages.KindEnded {
				step, draft = "", events.Draft{}
			}
			w.Note("")
		},
	}
	if !w.Terminal() {
		return h
	}
	h.Delta = func(d messages.Delta) {
		if d.Start != nil {
			return
		}
		if d.Step != step {
			step, draft = d.Step, events.Draft{}
		}
		draft.Add(d)
		w.Note(draftText(&draft, cmp.Or(d.Agent, "the model"), w.Width()))
	}
	h.Live = func(l *messages.Live) {
		lines := []string{}
		if text := view.LiveNote(l); text != "" {
			lines = append(lines, "    "+text)
		}
		for i := range l.Steps {
			if s := &l.Steps[i]; s.Error != "" {
				lines = append(lines, "    "+term.Line(s.Error, w.Width()-6))
			}
		}
		if len(lines) > noteLines {
			lines = lines[:noteLines]
		}
		w.Note(strings.Join(lines, "\n"))
	}
	return h
}

// noteLines bounds the displayed lines of a model's output, and noteText the bytes that
// they are taken from.
const (
	noteLines = 6
	noteText  = 2 << 10
)

// draftText returns the end of a model's output so far: its text or else its reasoning,
// and the calls of tools.
func draftText(d *events.Draft, who string, width int) string {
	head := "    " + term.Line(who, 24)
	if d.Try > 1 {
		head += fmt.Sprintf(", try %d", d.Try)
	}
	text := cmp.Or(d.Text, d.Reasoning)
	text = strings.ToValidUTF8(text[max(len(text)-noteText, 0):], "")
	lines := term.Wrap(strings.TrimSpace(term.Clean(text)), max(width-6, 20))
	if strings.TrimSpace(text) == "" {
		lines = nil
	}
	for _, c := range d.Calls {
		lines = append(lines, term.Line("> "+c.Name+" "+c.Args, width-6))
	}
	if len(lines) > noteLines {
		lines = lines[len(lines)-noteLines:]
	}
	return strings.Join(append([]string{head}, lines...), "\n      ")
}
