package work

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// maxAsked bounds the displayed arguments of a call without a window, in columns.
const maxAsked = 5 << 10

// asked is a question with its call.
type asked struct {
	client.Question
	Call   *session.ToolCall `json:"call,omitempty"`
	Detail string            `json:"detail,omitempty"` // of a question that a workflow asks
	Schema json.RawMessage   `json:"schema,omitempty"` // of the value that answers
	Error  string            `json:"error,omitempty"`  // why the call cannot be shown
}

// maxDetail bounds the displayed lines of a detail.
const maxDetail = 200

// detail returns a question's text besides its title, line by line. With a width a long
// line wraps into the next one, which begins with the same indent.
func detail(text string, width int) (rows [][]string) {
	n := 0
	for line := range strings.Lines(text) {
		if n++; n > maxDetail {
			continue
		}
		line = term.Clip(term.Clean(strings.ReplaceAll(strings.TrimRight(lineage.Mask(line), "\r\n"), "\t", "    ")), maxAsked)
		text := strings.TrimLeft(line, "> ")
		lead := "  > " + line[:len(line)-len(text)]
		if width == 0 || term.Width(lead) > width/2 {
			rows = append(rows, []string{"  > " + line})
			continue
		}
		for i, part := range term.Wrap(text, width-term.Width(lead)-len(hang)) {
			if i > 0 {
				part = hang + part
			}
			rows = append(rows, []string{lead + part})
		}
	}
	if n > maxDetail {
		rows = append(rows, []string{fmt.Sprintf("  > … %d more lines: --format json", n-maxDetail)})
	}
	return rows
}

// hang is the indent of the continuation of a detail's line.
const hang = "    "

// questions lists the questions of runs, all or those of one name.
func questions(ctx context.Context, a *app.App, s *app.System, name string) error {
	open, err := s.Questions.List(ctx)
	if err != nil {
		return err
	}
	if name != "" {
		r, err := reference.Run(ctx, s, name)
		if err != nil {
			return err
		}
		open = slices.DeleteFunc(open, func(q client.Question) bool { return q.Run != r.Run })
		listens := slices.ContainsFunc(r.Waits, func(w messages.Wait) bool { return w.Kind == run.WaitMessage })
		switch {
		case r.State == run.NeedsReview:
			return app.Fail(app.ExitConflict, "run %s needs review: %q shows the reason and the possible decisions", r.Run, a.Hint("why", string(r.Run)))
		case len(open) == 0 && listens:
			return app.Fail(app.ExitConflict, "run %s has no question: it waits for a message; send one with %q", r.Run, a.Hint("answer", string(r.Run), "TEXT"))
		case len(open) == 0:
			return app.Fail(app.ExitConflict, "run %s has no question: it is %s", r.Run, r.State)
		}
	}
	qs := make([]asked, len(open))
	for i, q := range open {
		qs[i].Question = q
		call, err := s.Questions.Call(ctx, q)
		switch {
		case err == nil:
			qs[i].Call = &call
		case ctx.Err() != nil:
			return err
		case !errors.Is(err, session.ErrNotFound):
			qs[i].Error = messages.Text(err)
			continue
		}
		detail, schema, err := s.Questions.Detail(ctx, q)
		if err != nil {
			qs[i].Error = messages.Text(err)
			continue
		}
		if qs[i].Schema = schema; qs[i].Call == nil {
			qs[i].Detail = detail
		}
	}
	if done, err := app.Emit(a, qs); done {
		return err
	}
	if name == "" {
		stopped, err := s.Runs.List(ctx, &client.RunsOptions{States: []run.State{run.NeedsReview}, Limit: 1})
		switch {
		case err != nil:
			return err
		case len(stopped) > 0:
			a.Remark("some runs of tenant %s need review, which is no question; %q lists them", s.Tenant(), a.Hint("ps", "--state", string(run.NeedsReview)))
		case len(qs) == 0:
			a.Remark("no run of tenant %s waits for an answer", s.Tenant())
		}
		if len(qs) == 0 {
			return nil
		}
	}
	now := time.Now()
	shortID := view.ShortIDs(view.IDsOf(qs, func(r *asked) run.ID { return r.Run }))
	var rows [][]string
	for _, q := range qs {
		rows = append(rows, []string{
			shortID(q.Run), string(q.Step), q.Kind, q.Workflow, view.Age(now, time.UnixMilli(q.Submitted)), view.Left(now, q.Expires), term.Line(cmp.Or(q.Title, q.Name), 60),
		})
		if q.Wants != "" {
			rows = append(rows, []string{"  > wants " + term.Line(q.Wants, maxAsked)})
		}
		switch {
		case q.Error != "":
			rows = append(rows, []string{"  > " + term.Line("its subject is not available: "+q.Error, maxAsked)})
		case q.Call != nil:
			rows = append(rows, []string{"  > " + term.Line(q.Call.Name+" "+lineage.Mask(q.Call.Args), maxAsked)})
		}
		width := 0
		if a.Out.Terminal() {
			width = a.Out.Width()
		}
		rows = append(rows, detail(q.Detail, width)...)
	}
	a.Out.Rows([]string{"RUN", "STEP", "KIND", "WORKFLOW", "AGE", "LEFT", "QUESTION"}, rows)
	return nil
}
