package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func (a *app) showCommand() *cobra.Command {
	var full bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show the transcript of a session, or of a run",
		Long: `Shows what was said in a session: each row with the version it made, who said
it, and the tools that were called. Long texts are cut; --full shows them whole.
"help names" tells how to name a session, a version or a run.`,
		Example: `  rath show @last
  rath show 7f3a:4 --full
  rath show 7f3a -o jsonl | jq .text`,
		Args: exactly(1, "one session or run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(s *system) error { return a.show(cmd.Context(), s, args[0], full) })
		},
	}
	cmd.Flags().BoolVar(&full, "full", false, "whole texts")
	return cmd
}

func (a *app) show(ctx context.Context, s *system, name string, full bool) error {
	n, err := s.lookUp(ctx, name)
	if err != nil {
		return err
	}
	if n.run != nil && n.session == "" { // ended before a log held it
		if done, err := emitOne(a, n.run); done {
			return err
		}
		a.runLine(n.run)
		return nil
	}
	v, err := s.Session(ctx, n.String())
	if err != nil {
		return err
	}
	switch a.config.Output.Value {
	case "json":
		return a.writeJSON(v)
	case "jsonl":
		_, err := emit(a, v.Chunks)
		return err
	}
	if n.run != nil {
		a.runLine(n.run)
	}
	a.out.Printf("session  %s:%d  %s, %s", v.Session, v.Version, counted(int64(v.Total), "row"), usageText(v.Usage))
	if v.Closed != "" {
		a.out.Printf(", %s", v.Closed)
		if v.Reason != "" {
			a.out.Printf(" %q", term.Line(v.Reason, 100))
		}
	}
	a.out.Println()
	for _, p := range v.Parents {
		a.out.Printf("from     %s:%d\n", p.Session, p.Version)
	}
	if !v.Placement.Head.IsZero() {
		a.out.Printf("files    %s in %s", v.Placement.Head.Short(), v.Placement.Backend)
		if v.Placement.Isolation != "" {
			a.out.Printf(" (%s)", v.Placement.Isolation)
		}
		a.out.Println()
	}
	for i := range v.Chunks {
		a.row(&v.Chunks[i], v.Session, full)
	}
	return nil
}

// runLine tells of a run how it stands.
func (a *app) runLine(r *messages.RunInfo) {
	a.out.Printf("run      %s of %s, %s", r.Run, cmp.Or(r.Workflow, "no workflow"), r.State)
	if r.State == run.NeedsReview && r.Due > 0 {
		a.out.Printf(" until %s", moment(time.UnixMilli(r.Due)))
	}
	if more := note(r, func(id run.ID) string { return string(id) }); more != "" {
		if !strings.HasPrefix(more, "for ") { // what a run waits for
			a.out.Printf(":")
		}
		a.out.Printf(" %s", term.Line(more, 200))
	}
	a.out.Println()
}

func usageText(u session.Usage) string {
	return counted(u.Calls, "model call") + ", " + counted(u.Tokens(), "token")
}

// row prints one row of a transcript.
func (a *app) row(c *messages.Chunk, in session.ID, full bool) {
	who := string(c.Kind)
	switch {
	case c.Kind == session.ToolResult:
		who = cmp.Or(c.Name, "tool") + " answers"
	case c.Agent != "":
		who = c.Agent
	}
	at := ""
	if c.Version > 0 {
		at = fmt.Sprintf("%d", c.Version)
		if c.Session != "" && c.Session != in {
			at = lineage.Short(c.Session) + ":" + at
		}
	}
	a.out.Println()
	a.out.Println(a.out.Paint(term.Bold, who) + a.out.Dim("  "+strings.TrimSpace(at+"  "+a.when(c))))
	width := a.out.Width() - 2
	lines := term.Wrap(term.Clean(c.Text), width)
	if c.Text == "" {
		lines = nil
	}
	const shown = 12
	left := 0
	if !full && len(lines) > shown {
		left = len(lines) - shown
		lines = lines[:shown]
	}
	for _, l := range lines {
		a.out.Println(strings.TrimRight("  "+l, " "))
	}
	if left > 0 {
		a.out.Println(a.out.Dim("  ... " + counted(int64(left), "more line") + "; --full shows them"))
	}
	if c.Truncated {
		a.out.Println(a.out.Dim("  ... the text goes on"))
	}
	for _, call := range c.Calls {
		args := term.Line(call.Args, width-len(call.Name)-4)
		if full {
			args = term.Clean(call.Args)
		}
		a.out.Println("  " + a.out.Paint(term.Cyan, "> "+term.Line(call.Name, 60)) + " " + args)
	}
}

// when tells the time and the step of a row.
func (a *app) when(c *messages.Chunk) string {
	var parts []string
	if c.Time > 0 {
		parts = append(parts, clock(time.UnixMilli(c.Time)))
	}
	if c.Step != "" {
		parts = append(parts, "step "+c.Step)
	}
	if n := c.Usage.Tokens(); n > 0 {
		parts = append(parts, counted(n, "token"))
	}
	if c.Failed {
		parts = append(parts, "an error")
	}
	return strings.Join(parts, ", ")
}
