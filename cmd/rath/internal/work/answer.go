package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/cmd/rath/internal/selection"
	"github.com/rathcluster/rath/internal/core/form"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

const (
	yes = "yes"
	no  = "no"
)

// reviews are the answers to a run that needs review.
var reviews = []string{run.Happened, run.Again, run.Pin, run.Fail}

// answer is a person's answer, and its question.
type answer struct {
	step  run.Path // "" for the only one
	text  string
	edit  string // the changes to the arguments of the call
	value string // the result of the call
	d     messages.Control
}

// Answer is the command "answer".
func Answer(a *app.App) *cobra.Command {
	var o selection.Selection
	var w answer
	cmd := &cobra.Command{
		Use:   "answer [RUN [STEP] yes|no|VALUE]",
		Short: "List and answer the questions of runs",
		Long: `Lists the open questions of all runs, or of one, those of the oldest run first.
With an answer it sends the answer, and returns once it is recorded. Omit the
step if the run has one question.

  yes, no    for an approval. With yes, --edit changes the request, such as
             the arguments of a tool call, or has the values requested by an
             MCP server. The reason of a no is kept as evidence, and the agent
             reads it as the result of its call
  VALUE      for a question, a value of its type: text as it is, or in quotes
             as JSON; other types as JSON, with yes and no for true and false.
             A value of another type is rejected, and the run keeps waiting.
             For a run that listens: the message
  happened, again, pin, fail
             for a run that needs review. An interrupted non-idempotent call
             did happen (--value is its result), did not and is to run again,
             or the run is to fail; check the call's target first. A run with
             a code mismatch tries the current code (again), or waits for the
             recorded revision (pin)

A waiting run uses no slot: it may wait for weeks. LEFT is the time until the
question expires: 14 days, unless the workflow or the task sets another time.
Then the run continues without an answer: a call without approval does not run.
The subject stands below the question: the call, or a detail of the workflow,
such as a diff. Credentials in it are masked, except with --format json and in
"show RUN --full".`,
		Example: `  rath answer
  rath answer @last yes
  rath answer 7f3a 2.0 no --reason "not on a Friday" --by ann
  rath answer 7f3a yes --edit '{"to":"staging"}'
  rath answer 7f3a blue
  rath answer 7f3a happened --value '"rel-1"' --reason "seen in the forge"
  rath answer --where 'workflow=deploy' yes --dry-run`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.Where != "" {
				return app.Between(1, 2, "with --where an answer, and before it the step")(cmd, args)
			}
			return app.Between(0, 3, "a run, the step of its question if it asks several, and an answer")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			name := ""
			if o.Where == "" && len(args) > 0 {
				name, args = args[0], args[1:]
			}
			if len(args) > 0 {
				w.text = args[len(args)-1]
			}
			if len(args) > 1 {
				w.step = run.Path(args[0])
			}
			if len(args) == 0 {
				return a.With(ctx, func(s *app.System) error { return questions(ctx, a, s, name) })
			}
			if err := w.check(); err != nil {
				return app.Usage(cmd, err)
			}
			return a.With(ctx, func(s *app.System) error {
				if o.Where != "" {
					return answerAll(ctx, a, s, &o, &w)
				}
				return answerOne(ctx, a, s, name, &w)
			})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&w.d.Reason, "reason", "", "why, kept as evidence")
	a.ByFlag(fs, &w.d.By, "who answers")
	fs.StringVar(&w.edit, "edit", "", "of yes: the changed values, as JSON")
	fs.StringVar(&w.value, "value", "", "of happened: the result of the call, as JSON")
	o.Flags(fs)
	return cmd
}

// check rejects flags that exclude each other.
func (w *answer) check() error {
	for _, c := range []struct{ flag, value, with string }{{"--edit", w.edit, yes}, {"--value", w.value, run.Happened}} {
		switch {
		case c.value == "":
		case w.text != c.with:
			return fmt.Errorf("%s belongs to the answer %s", c.flag, c.with)
		case !json.Valid([]byte(c.value)):
			return fmt.Errorf("%s is not JSON: %s; a text is written with quotes: '\"done\"'", c.flag, term.Line(c.value, 40))
		}
	}
	return nil
}

// valueOf parses the text of an answer as the value that the run's question asks for. A
// step without a question in the lineage, and several questions, are left to the node
// to reject.
func (w *answer) valueOf(ctx context.Context, s *app.System, r *messages.RunInfo) (json.RawMessage, error) {
	if r.Schemas == nil { // of a list, which has none
		one, err := s.Runs.Get(ctx, r.Run)
		if err != nil {
			return nil, err
		}
		r = &one
	}
	schema := ""
	for _, q := range r.Waits {
		if q.Kind == run.WaitResponse && (w.step == "" || q.Step == w.step) {
			schema = string(r.Schemas[q.Step])
		}
	}
	return form.Read(schema, w.text), nil
}

// kind returns the kind of the run's question at the step of the answer; "" without
// one.
func (w *answer) kind(r *messages.RunInfo) string {
	for _, q := range r.Waits {
		if asks(q.Kind) && (w.step == "" || q.Step == w.step) {
			return q.Kind
		}
	}
	return ""
}

// asks reports whether a wait of this kind waits for a person.
func asks(kind string) bool {
	return kind == run.WaitApproval || kind == run.WaitResponse || kind == run.WaitMessage
}

// give gives the answer to a run's question of this kind, and returns the words for the
// result.
func (w *answer) give(ctx context.Context, s *app.System, r *messages.RunInfo, kind string) (verb, done string, err error) {
	d := w.d
	d.Step = w.step
	needsReason := func() error {
		if d.Reason == "" {
			return app.Fail(app.ExitUsage, "--reason is needed with the answer %s: it is kept as evidence", w.text)
		}
		return nil
	}
	switch {
	case r.State == run.NeedsReview || kind == "" && isReview(w.text):
		return w.review(ctx, s, r, d, needsReason)
	case kind == run.WaitMessage:
		d.Text, d.Reason = w.text, ""
		return "message", "sent", s.Runs.Message(ctx, r.Run, d)
	case kind == run.WaitResponse || kind == "" && w.text != yes && w.text != no:
		if d.Value, err = w.valueOf(ctx, s, r); err != nil {
			return "", "", err
		}
		return messages.VerbRespond, "answered", s.Questions.Answer(ctx, r.Run, d)
	case w.text == no:
		if err := needsReason(); err != nil {
			return "", "", err
		}
		return messages.VerbReject, "rejected", s.Questions.Reject(ctx, r.Run, d)
	case w.text != yes:
		return "", "", app.Fail(app.ExitUsage, "run %s waits for yes or no, not for %s", r.Run, term.Line(w.text, 40))
	}
	if w.edit != "" {
		d.Value = json.RawMessage(w.edit)
	}
	return messages.VerbApprove, "approved", s.Questions.Approve(ctx, r.Run, d)
}

func isReview(text string) bool {
	return slices.Contains(reviews, text)
}

// review decides about a run that needs review.
func (w *answer) review(ctx context.Context, s *app.System, r *messages.RunInfo, d messages.Control, needsReason func() error) (verb, done string, err error) {
	switch {
	case !isReview(w.text):
		return "", "", app.Fail(app.ExitUsage, "run %s needs review: answer %s", r.Run, view.Names(reviews))
	case r.State != run.NeedsReview:
		return "", "", app.Fail(app.ExitConflict, "run %s needs no review: it is %s", r.Run, r.State)
	}
	if err := needsReason(); err != nil {
		return "", "", err
	}
	d.Decision, d.Step = w.text, ""
	if w.value != "" {
		d.Value = json.RawMessage(w.value)
	}
	return messages.VerbResolve, "decided", s.Runs.Resolve(ctx, r.Run, d)
}

// answerOne answers the run of a name.
func answerOne(ctx context.Context, a *app.App, s *app.System, name string, w *answer) error {
	r, err := reference.Run(ctx, s, name)
	if err != nil {
		return err
	}
	verb, done, err := w.give(ctx, s, &r, w.kind(&r))
	switch {
	case errors.Is(err, run.ErrState):
		return fmt.Errorf("%w; %q lists the open questions", err, a.Hint("answer"))
	case err != nil:
		return err
	case verb == messages.VerbResolve && w.text == run.Fail:
		a.Remark("decided; the run ends as failed")
	case verb == messages.VerbResolve && w.text == run.Pin:
		revision := ""
		if r.Review != nil {
			revision = r.Review.Revision
		}
		a.Remark("pinned; the run resumes when a node offers revision %s of %s", revision, r.Workflow)
	default:
		follow.GoesOn(a, s, done, &r)
	}
	return selection.Acted(a, &r, verb)
}

// answerAll answers the questions of all runs that --where selects, as far as the
// answer fits them.
func answerAll(ctx context.Context, a *app.App, s *app.System, o *selection.Selection, w *answer) error {
	fits := func(r *messages.RunInfo) (open []messages.Wait) {
		for _, q := range r.Waits {
			if w.step != "" && q.Step != w.step {
				continue
			}
			if approval := w.text == yes || w.text == no; approval && q.Kind == run.WaitApproval || !approval && !isReview(w.text) && q.Kind == run.WaitResponse {
				open = append(open, q)
			}
		}
		return open
	}
	return selection.Each(ctx, a, s, o, nil, selection.Verb{
		Name: "answer", Past: "answered",
		Skip: func(r *messages.RunInfo) string {
			if r.State == run.NeedsReview && isReview(w.text) || len(fits(r)) > 0 {
				return ""
			}
			return "asks nothing that " + term.Line(w.text, 20) + " answers"
		},
		Plan: func(*messages.RunInfo) string { return term.Line(w.text, 40) },
		Do: func(ctx context.Context, r *messages.RunInfo) (string, error) {
			if r.State == run.NeedsReview {
				_, done, err := w.give(ctx, s, r, "")
				return done, err
			}
			said := ""
			for _, q := range fits(r) {
				one := *w
				one.step = q.Step
				_, done, err := one.give(ctx, s, r, q.Kind)
				if err != nil {
					return said, err
				}
				said = done
			}
			return said, nil
		},
	})
}
