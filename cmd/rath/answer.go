package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func (a *app) approvalsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "approvals",
		Short:   "List what runs wait for that a person has to say",
		Example: "  rath approvals ls",
		Args:    noSubcommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "ls",
		Short: "List the open questions of all runs",
		Long: `Lists the open questions of all runs, those of the oldest run first. "approve"
and "reject" decide about an approval, "respond" answers a response. A waiting
run holds nothing but its session: it may wait for weeks. LEFT is how long a
question stands: 14 days, unless the workflow or the task says otherwise. Then
the run goes on without an answer: a call that nobody approved does not run.
The call that an approval is about stands below it; what looks like a credential
is masked there, and not with -o json, nor in "show RUN --full".`,
		Example: `  rath approvals ls
  rath approvals ls -o jsonl
  rath approve 7f3a
  rath reject 7f3a 2.0 --reason "not on a Friday"`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			return a.with(ctx, func(s *system) error { return a.approvals(ctx, s) })
		},
	})
	return cmd
}

// maxAsked bounds the arguments of a call that are shown where nobody looks at a
// window, in columns.
const maxAsked = 4 << 10

// asked is a question with the call that it is about.
type asked struct {
	client.Question
	Call  *session.ToolCall `json:"call,omitempty"`
	Error string            `json:"error,omitempty"` // why the call cannot be told
}

func (a *app) approvals(ctx context.Context, s *system) error {
	open, err := s.Approvals(ctx)
	if err != nil {
		return err
	}
	qs := make([]asked, len(open))
	for i, q := range open {
		qs[i].Question = q
		switch call, err := s.Asked(ctx, q); {
		case err == nil:
			qs[i].Call = &call
		case ctx.Err() != nil:
			return err
		case !errors.Is(err, session.ErrNotFound):
			qs[i].Error = messages.Text(err)
		}
	}
	if done, err := emit(a, qs); done {
		return err
	}
	if len(qs) == 0 {
		a.remark("no run of tenant %s waits for a person", s.Tenant())
		return nil
	}
	now := time.Now()
	shortID := view.ShortIDs(view.IDsOf(qs, func(r *asked) run.ID { return r.Run }))
	var rows [][]string
	for _, q := range qs {
		rows = append(rows, []string{
			shortID(q.Run), string(q.Step), q.Kind, q.Workflow, view.Age(now, time.UnixMilli(q.Submitted)), view.Left(now, q.Expires), term.Line(cmp.Or(q.Title, q.Name), 60),
		})
		switch {
		case q.Error != "":
			rows = append(rows, []string{"  > " + term.Line("its call cannot be told: "+q.Error, maxAsked)})
		case q.Call != nil:
			rows = append(rows, []string{"  > " + term.Line(q.Call.Name+" "+lineage.Mask(q.Call.Args), maxAsked)})
		}
	}
	a.out.Rows([]string{"RUN", "STEP", "KIND", "WORKFLOW", "AGE", "LEFT", "QUESTION"}, rows)
	return nil
}

func (a *app) approveCommand() *cobra.Command {
	var d client.Decision
	var edit string
	cmd := &cobra.Command{
		Use:   "approve RUN [STEP]",
		Short: "Say yes to what a run asks",
		Long: `Says yes to a question of a run, and returns once that is recorded. The step may
be left out when the run asks one question; "approvals ls" lists them. --edit
changes what was asked for, such as the arguments of a tool call.`,
		Example: `  rath approve @last
  rath approve 7f3a 2.0 --reason "seen with Ann"
  rath approve 7f3a --edit '{"to":"staging"}'`,
		Args: oneOrTwo("a run and the step of its question"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.decide(cmd, args, d, edit, "--edit", (*client.Client).Approve, "approved")
		},
	}
	cmd.Flags().StringVar(&edit, "edit", "", "what to change, as JSON")
	a.decisionFlags(cmd, &d)
	return cmd
}

func (a *app) rejectCommand() *cobra.Command {
	var d client.Decision
	cmd := &cobra.Command{
		Use:   "reject RUN [STEP] --reason TEXT",
		Short: "Say no to what a run asks",
		Long: `Says no to a question of a run. The reason is kept as evidence, and the agent
whose tool call it is gets it as the call's result.`,
		Example: `  rath reject @last --reason "wrong branch"
  rath reject 7f3a 2.0 --reason "not on a Friday" --by ann`,
		Args: oneOrTwo("a run and the step of its question"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if d.Reason == "" {
				return usage(cmd, errors.New("--reason is needed: the agent and the evidence get it"))
			}
			return a.decide(cmd, args, d, "", "", (*client.Client).Reject, "rejected")
		},
	}
	a.decisionFlags(cmd, &d)
	return cmd
}

func (a *app) respondCommand() *cobra.Command {
	var d client.Decision
	cmd := &cobra.Command{
		Use:   "respond RUN [STEP] JSON",
		Short: "Answer what a run asks with a value",
		Long: `Answers a question of a run with a value as JSON; a text is written with quotes.
The step may be left out when the run asks one question.`,
		Example: `  rath respond @last '"blue"'
  rath respond 7f3a 3 '{"amount":12}'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 3 {
				return usage(cmd, fmt.Errorf("respond takes a run, the step of its question if it asks several, and a value; got %s", view.Counted(int64(len(args)), "argument")))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			value := args[len(args)-1]
			return a.decide(cmd, args[:len(args)-1], d, value, "the value", (*client.Client).Respond, "answered")
		},
	}
	a.decisionFlags(cmd, &d)
	return cmd
}

func (a *app) decisionFlags(cmd *cobra.Command, d *client.Decision) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&d.Reason, "reason", "", "why, kept as evidence")
	a.byFlag(fs, &d.By, "who decides")
}

// byFlag says who did something; nobody checks it.
func (a *app) byFlag(fs *pflag.FlagSet, by *string, what string) {
	fs.StringVar(by, "by", a.getenv("USER"), what+", recorded as said (default $USER)")
	fs.Lookup("by").DefValue = "" // which differs between machines
}

func oneOrTwo(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < 1 || len(args) > 2 {
			return usage(cmd, fmt.Errorf("%s takes %s, got %s", cmd.Name(), what, view.Counted(int64(len(args)), "argument")))
		}
		return nil
	}
}

// decide sends a decision about a question. value is JSON, "" for none.
func (a *app) decide(cmd *cobra.Command, args []string, d client.Decision, value, flag string,
	send func(*client.Client, context.Context, run.ID, client.Decision) error, done string,
) error {
	if value != "" {
		if !json.Valid([]byte(value)) {
			return usage(cmd, fmt.Errorf("%s is not JSON: %s; a text is written with quotes: '\"done\"'", flag, term.Line(value, 40)))
		}
		d.Value = json.RawMessage(value)
	}
	if len(args) > 1 {
		d.Step = run.Path(args[1])
	}
	ctx := cmd.Context()
	return a.with(ctx, func(s *system) error {
		r, err := s.runOf(ctx, args[0])
		if err != nil {
			return err
		}
		if err := send(s.Client, ctx, r.Run, d); err != nil {
			if errors.Is(err, run.ErrState) {
				return fmt.Errorf("%w; %q lists what is open", err, a.hint("approvals", "ls"))
			}
			return err
		}
		a.goesOn(s, done, &r)
		return a.acted(&r, cmd.Name())
	})
}

func (a *app) messageCommand() *cobra.Command {
	var m client.Message
	cmd := &cobra.Command{
		Use:   "message RUN|SESSION TEXT",
		Short: "Say something to a run or a session",
		Long: `Says something to a session. The run that holds it hears it at its next model
call, or at the step that listens; --interrupt cuts off the model call that is
under way, which is then made again with the message. Without an open run the
message becomes the session's next user chunk.`,
		Example: `  rath message @last "and mind the tests"
  rath message 7f3a "stop, look at the issue first" --interrupt
  rath message greetings "good morning"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usage(cmd, fmt.Errorf("message takes a run or a session, and a text in quotes; got %s", view.Counted(int64(len(args)), "argument")))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			m.Text = args[1]
			ctx := cmd.Context()
			return a.with(ctx, func(s *system) error { return a.message(ctx, s, args[0], m) })
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&m.Interrupt, "interrupt", false, "cut off the model call that is under way")
	fs.StringVar(&m.ID, "id", "", "makes sending the same message again harmless")
	a.byFlag(fs, &m.By, "who says it")
	return cmd
}

func (a *app) message(ctx context.Context, s *system, name string, m client.Message) error {
	n, err := s.resolve(ctx, name)
	if err != nil {
		return err
	}
	if n.version != 0 && n.run == nil {
		return fail(exitUsage, "%s: a message goes to the newest version of a session; name it as %s", name, n.session)
	}
	if n.run != nil && !n.run.State.Terminal() {
		if err := s.Message(ctx, n.run.Run, m); err != nil {
			return err
		}
		a.remark("told run %s (%s)", n.run.Run, n.run.State)
		return a.acted(n.run, "message")
	}
	if err := s.MessageSession(ctx, string(n.session), m); err != nil {
		return err
	}
	a.remark("told session %s", n.session)
	_, err = emit(a, []done{{Session: n.session, Action: "message", Done: true}})
	return err
}

// answerWith is the command that answers what a run waits for.
func (a *app) answerWith(id run.ID, kind string) string {
	switch kind {
	case run.WaitResponse:
		return a.hint("respond", string(id), "JSON")
	case run.WaitMessage:
		return a.hint("message", string(id), "TEXT")
	}
	return a.hint("approve", string(id))
}
