package work

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/models"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// taskFlags are the fields of a task that flags can set.
type taskFlags struct {
	message string
	file    string
	id      string
	session string
	forkOf  string
	model   string
	tools   []string
	mcp     []string
	budget  budgetFlags
	choice  string
	agents  []string
	attach  []string
	tags    []string
	after   []string
	ended   []string // that must have ended in any way

	onFailure string
	priority  int64
	class     string
}

func (f *taskFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&f.message, "message", "m", "", "the input: JSON, or text")
	fs.StringVarP(&f.file, "file", "f", "", "read the input from a file; - is standard input")
	fs.StringVar(&f.session, "session", "", "continue this session, by its id, the beginning of the id, or a name; or start one with this name")
	fs.StringVar(&f.forkOf, "fork-of", "", "start as a branch of a session or run, at its newest version or as NAME:VERSION")
	fs.StringVar(&f.model, "model", "", "model")
	fs.StringSliceVar(&f.tools, "tools", nil, "tools of the agent, separated by commas")
	fs.StringSliceVar(&f.mcp, "mcp", nil, "MCP servers of the node for the agent, separated by commas")
	fs.StringVar(&f.choice, "tool-choice", "", "of agent: tool choice of the first model call: required, none, auto, or the name of a tool")
	fs.StringSliceVar(&f.agents, "agents", nil, "agents in files that the agent may call as tools; workspace is those in its files")
	fs.StringArrayVar(&f.attach, "attach", nil, "of agent: show the model this image, a PNG, JPEG, GIF or WebP; can be given again")
	fs.StringArrayVar(&f.tags, "tag", nil, "a pair to find the run by, such as customer=acme; can be given again")
	fs.StringSliceVar(&f.after, "after", nil, "begin once these runs have succeeded, at most 16, separated by commas; fail if one does not")
	fs.StringSliceVar(&f.ended, "after-any", nil, "begin once these runs have ended, in any way")
	fs.StringVar(&f.onFailure, "on-failure", "", "hold: wait for \"rath answer RUN again\" at a step that has failed for the last time")
	fs.Int64Var(&f.priority, "priority", 0, "of the waiting runs, the one with the highest begins first: -100 to 100")
	fs.StringVar(&f.class, "class", "", "batch: begin only where no other run waits")
	f.budget.add(fs)
	fs.StringVar(&f.id, "id", "", "id of the run, its idempotency key (default drawn)")
}

// budgetFlags are the flags for the budget of a run.
type budgetFlags struct {
	tokens, steps int64
	usd           string
}

func (f *budgetFlags) add(fs *pflag.FlagSet) {
	fs.Int64Var(&f.tokens, "budget-tokens", 0, "stop the run after this many tokens")
	fs.StringVar(&f.usd, "budget-usd", "", "stop the run at this cost of its model calls in US dollars, such as 0.50")
	fs.Int64Var(&f.steps, "budget-steps", 0, "stop the run after this many steps")
}

// budget returns the budget of the flags; zero fields are unlimited.
func (f *budgetFlags) budget(cmd *cobra.Command) (b messages.Budget, err error) {
	if f.tokens < 0 || f.steps < 0 {
		return b, app.Usage(cmd, errors.New("a budget is a positive number"))
	}
	b.Tokens, b.Steps = f.tokens, f.steps
	if f.usd != "" {
		if b.MicroUSD, err = models.MicroUSD(f.usd); err != nil || b.MicroUSD == 0 {
			return b, app.Usage(cmd, fmt.Errorf("--budget-usd %s: want US dollars such as 0.50, to at most 6 places", f.usd))
		}
	}
	return b, nil
}

// task builds a task from the flags.
func task(a *app.App, cmd *cobra.Command, f *taskFlags) (messages.Task, error) {
	t := messages.Task{
		ID: run.ID(f.id), Session: f.session, ForkOf: f.forkOf, Model: f.model, Tools: f.tools, MCP: f.mcp, OnFailure: f.onFailure,
		Priority: f.priority, Class: f.class,
	}
	if f.id == "" {
		t.ID = client.NewID()
	} else if _, err := app.RunID(f.id); err != nil {
		return t, err
	}
	for _, pair := range f.tags {
		key, value, _ := strings.Cut(pair, "=")
		if value == "" {
			return t, app.Usage(cmd, fmt.Errorf("--tag %.40q: want KEY=VALUE, such as customer=acme", pair))
		}
		if _, twice := t.Tags[key]; twice {
			return t, app.Usage(cmd, fmt.Errorf("--tag %s is there twice", key))
		}
		t.Tags = t.Tags.With(key, value)
	}
	for _, id := range f.after {
		t.After = append(t.After, run.ID(id))
	}
	for _, id := range f.ended {
		t.AfterAny = append(t.AfterAny, run.ID(id))
	}
	if err := run.ValidAfter(t.ID, slices.Concat(t.After, t.AfterAny)); err != nil {
		return t, app.Usage(cmd, fmt.Errorf("--after: %s", messages.Text(err)))
	}
	if err := run.ValidOnFailure(t.OnFailure); err != nil {
		return t, app.Usage(cmd, fmt.Errorf("--on-failure: %s", messages.Text(err)))
	}
	if err := errors.Join(run.ValidPriority(t.Priority), run.ValidClass(t.Class)); err != nil {
		return t, app.Usage(cmd, errors.New(messages.Text(err)))
	}
	if err := t.Tags.Valid(); err != nil {
		return t, app.Usage(cmd, fmt.Errorf("--tag: %s", messages.Text(err)))
	}
	var err error
	if t.Budget, err = f.budget.budget(cmd); err != nil {
		return t, err
	}
	text := f.message
	switch {
	case f.message != "" && f.file != "":
		return t, app.Usage(cmd, errors.New("give the input with -m or with -f, not both"))
	case f.file != "":
		data, err := a.ReadInput(f.file, run.MaxInput)
		if err != nil {
			return t, err
		}
		if text = string(data); strings.TrimSpace(text) == "" {
			name := f.file
			if name == "-" {
				name = "standard input"
			}
			return t, app.Fail(app.ExitUsage, "-f %s: the file is empty; it needs the input: a text, or JSON", name)
		}
	}
	if !utf8.ValidString(text) {
		return t, app.Fail(app.ExitUsage, "the input is no text in UTF-8; put it into a file of the workspace (-C) and name that")
	}
	if len(text) > run.MaxInput {
		return t, app.Fail(app.ExitUsage, "the input has %s bytes, a task takes %s at most; put it into a file of the workspace (-C) and name that",
			excerpt.Thousands(int64(len(text))), excerpt.Thousands(run.MaxInput))
	}
	t.Input = inputOf(text)
	return t, nil
}

// inputOf returns a text as the JSON of an input: unchanged if it is an object, an
// array or a quoted text, else as a JSON string.
func inputOf(text string) json.RawMessage {
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return nil
	}
	if strings.ContainsAny(trimmed[:1], `{["`) && json.Valid([]byte(trimmed)) {
		return json.RawMessage(trimmed)
	}
	quoted, err := json.Marshal(strings.TrimRight(text, "\r\n"))
	if err != nil { // a string always encodes
		return nil
	}
	return quoted
}
