package app

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Usage returns the error of a wrong command line.
func Usage(cmd *cobra.Command, err error) error {
	return WithCode(ExitUsage, fmt.Errorf("%w; see %q", err, cmd.CommandPath()+" --help"))
}

// moved are words that people try, and the commands for them.
var moved = map[string]string{
	"trace": "show RUN --steps", "graph": "show NAME --tree", "impact": "why --impact WHAT",
	"fork": "session fork", "merge": "session merge", "rewind": "session rewind", "rerun": "session rerun", "message": "session message",
	"replay": "session replay", "provision": "cluster provision", "key": "cluster key", "nodes": "cluster nodes", "tools": "cluster tools",
	"dlq": "cluster dlq", "tail": "cluster tail", "quarantine": "cluster quarantine", "release": "cluster release", "rebudget": "cluster rebudget",
	"prune": "cluster prune", "import": "cluster import", "audit": "cluster audit", "bench": "cluster bench",
	"approvals": "answer", "approve": "answer RUN yes", "reject": "answer RUN no --reason TEXT", "respond": "answer RUN VALUE",
	"resolve": "answer RUN happened|again|pin|fail --reason TEXT", "config": "doctor config", "completion": "doctor completion",
}

// FlagError explains which value a flag wants, without the words of package strconv.
func FlagError(err error) error {
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok && (e.GetSpecifiedName() == "o" || e.GetSpecifiedName() == "output") {
		return fmt.Errorf("%w; use --format json or jsonl for another format", err)
	}
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok && e.GetSpecifiedName() == "yes" {
		return fmt.Errorf("%w; only run --apply asks for a confirmation: omit it", err)
	}
	e, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	want := map[string]string{
		"int": "a whole number", "int64": "a whole number", "uint32": "a whole number from 0 on", "uint64": "a whole number from 0 on", "float64": "a number",
		"bool": "true or false", "duration": "a duration such as 90s, 15m or 2h",
	}[e.GetFlag().Value.Type()]
	if want == "" {
		return err
	}
	return fmt.Errorf("--%s %q: want %s", e.GetFlag().Name, e.GetValue(), want)
}

// NoSubcommand rejects a word that is no command, with the closest ones.
func NoSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	for cmd.HasParent() && !cmd.HasAvailableSubCommands() { // of "help nodes ls x"
		cmd = cmd.Parent()
	}
	cmd.SuggestionsMinimumDistance = cmd.Root().SuggestionsMinimumDistance
	lists := cmd.CommandPath() + " --help"
	if !cmd.HasParent() {
		lists = "rath help"
	}
	msg := fmt.Sprintf("unknown command %q", args[0])
	if now := moved[args[0]]; now != "" && !cmd.HasParent() {
		msg += fmt.Sprintf("; type %q instead", "rath "+now)
	} else if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		msg += "; did you mean " + strings.Join(near, " or ") + "?"
	} else {
		msg += fmt.Sprintf("; %q lists them", lists)
	}
	return WithCode(ExitUsage, errors.New(msg))
}

// NoArguments is for commands that take flags only.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage(cmd, fmt.Errorf("%s takes no arguments, got %q", cmd.Name(), args[0]))
	}
	return nil
}

// Exactly requires n arguments; what describes them in the error.
func Exactly(n int, what string) cobra.PositionalArgs { return Between(n, n, what) }

// AtMost allows up to n arguments.
func AtMost(n int, what string) cobra.PositionalArgs { return Between(0, n, what+" at most") }

// Between requires from least to most arguments; what describes them in the error.
func Between(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return Usage(cmd, fmt.Errorf("%s takes %s, got %s", cmd.Name(), what, view.Counted(int64(len(args)), "argument")))
		}
		return nil
	}
}

// OwnServer is for commands that bring a NATS server of their own.
func (a *App) OwnServer(cmd *cobra.Command) error {
	for _, name := range []string{"server", "context", "creds"} {
		if a.set.Changed(name) {
			return Usage(cmd, fmt.Errorf("--%s does not go with %s, which runs its own NATS server over the store: omit it", name, cmd.Name()))
		}
	}
	return nil
}

// ByFlag adds --by: the name of a person, which is recorded unchecked.
func (a *App) ByFlag(fs *pflag.FlagSet, by *string, what string) {
	fs.StringVar(by, "by", a.Getenv("USER"), what+", recorded unverified (default $USER)")
	fs.Lookup("by").DefValue = "" // the default differs between machines
}

// RunID checks an id that a person typed.
func RunID(s string) (run.ID, error) {
	if err := session.ValidID("run", s); err != nil {
		return "", WithCode(ExitUsage, err)
	}
	return run.ID(s), nil
}
