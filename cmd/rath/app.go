package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// app is one invocation.
type app struct {
	program string // as it was started
	in      io.Reader
	stdout  io.Writer
	stderr  io.Writer
	getenv  func(string) string

	out *term.Writer // data
	err *term.Writer // everything else

	flags  flags
	set    *pflag.FlagSet // the global flags, to see which were given
	config settings
}

// flags are those of every command.
type flags struct {
	config  string
	store   string
	server  string
	context string
	creds   string
	tenant  string
	output  string
	color   string
	level   string
	quiet   bool
	verbose bool
	plain   bool // no headers
}

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

// execute runs one command line and returns the exit code. args[0] is the
// program's name.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	a := &app{program: args[0], in: stdin, stdout: stdout, stderr: stderr, getenv: getenv}
	a.out, a.err = a.writer(stdout, "auto"), a.writer(stderr, "auto")
	ctx, stop := interruptible(context.Background())
	defer stop()
	root := a.root()
	root.SetArgs(args[1:])
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	a.out.Note("")
	a.err.Note("")
	if err == nil {
		err = a.out.Err()
	}
	return a.report(ctx, err)
}

// interruptible returns a context that ends with errInterrupted at the first
// interrupt or termination; the second one ends the process.
func interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		again := false
		for range signals {
			if again {
				os.Exit(exitInterrupted)
			}
			cancel(errInterrupted)
			again = true
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		<-done
		cancel(nil)
	}
}

func (a *app) writer(w io.Writer, color string) *term.Writer {
	return term.New(w, &term.Options{Env: a.getenv, Color: color, NoHeaders: a.flags.plain})
}

// root builds the command tree.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "rath",
		Short: "Run fleets of LLM agents whose every step is durable and can be verified",
		Long: `rath runs agent workflows on durable sessions, tells what they did and
proves it.

Without --server, NATS_URL or a context of the nats command line it uses the
store in ./.rath: through the node that "rath dev" runs there, or by opening the
store itself.`,
		Example: `  rath demo                          see what it does: no key, no network
  rath run -m "say hello"            one agent, one answer
  rath run -C . -m "fix the tests"   on a copy of this directory; shows the diff
  rath why @last:slug.sh:7           who made this line, when and why`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		Args:              noSubcommand,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.prepare(cmd) },
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SuggestionsMinimumDistance = 2
	root.SetHelpTemplate(helpTemplate)
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, flagError(err)) })
	a.globals(root.PersistentFlags())
	root.AddGroup(
		&cobra.Group{ID: "start", Title: "Start"},
		&cobra.Group{ID: "work", Title: "Work"},
		&cobra.Group{ID: "look", Title: "Look"},
		&cobra.Group{ID: "fleet", Title: "Fleet"},
		&cobra.Group{ID: "files", Title: "Evidence and files"},
		&cobra.Group{ID: "own", Title: "This installation"},
	)
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("start", a.demoCommand(), a.runCommand(), a.devCommand(), a.initCommand())
	add("work", a.submitCommand(), a.cancelCommand(), a.rerunCommand(), a.resumeCommand(), a.resolveCommand(), a.forkCommand())
	add("look", a.psCommand(), a.showCommand(), a.tailCommand(), a.traceCommand(), a.whyCommand(), a.impactCommand(), a.graphCommand(), a.diffCommand())
	add("work", a.approvalsCommand(), a.approveCommand(), a.rejectCommand(), a.respondCommand(), a.messageCommand(), a.rewindCommand(), a.mergeCommand())
	add("fleet", a.nodesCommand(), a.toolsCommand(), a.dlqCommand(), a.quarantineCommand(), a.releaseCommand(), a.rebudgetCommand(), a.pruneCommand(), a.keyCommand(), a.provisionCommand(), a.benchCommand())
	add("files", a.exportCommand(), a.verifyCommand(), a.replayCommand(), a.auditCommand(), a.importCommand())
	add("own", a.doctorCommand(), a.configCommand(), a.versionCommand(), a.completionCommand())
	root.AddCommand(a.memberCommand())
	root.AddCommand(topics()...)
	root.SetHelpCommand(helpCommand())
	root.SetHelpCommandGroupID("own")
	return root
}

// noSubcommand refuses a word that is no command, with the closest ones.
func noSubcommand(cmd *cobra.Command, args []string) error {
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
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		msg += "; did you mean " + strings.Join(near, " or ") + "?"
	} else {
		msg += fmt.Sprintf("; %q lists them", lists)
	}
	return &exitError{exitUsage, errors.New(msg)}
}

func (a *app) globals(f *pflag.FlagSet) {
	a.set = f
	f.SortFlags = false
	f.StringVar(&a.flags.store, "store", "", "directory of the store (default .rath)")
	f.StringVar(&a.flags.server, "server", "", "NATS server to use instead of a store, such as nats://host:4222")
	f.StringVar(&a.flags.context, "context", "", "context of the nats command line to connect with")
	f.StringVar(&a.flags.creds, "creds", "", "file with NATS credentials")
	f.StringVar(&a.flags.tenant, "tenant", "", "tenant (default default)")
	f.StringVarP(&a.flags.output, "output", "o", "", "how to write: table, json or jsonl (default table)")
	f.StringVar(&a.flags.color, "color", "", "auto, always or never (default auto)")
	f.StringVar(&a.flags.level, "level", "", "durability of the store: fsync or lazy (default fsync)")
	f.StringVar(&a.flags.config, "config", "", "configuration file")
	f.BoolVar(&a.flags.plain, "no-headers", false, "tables without their first line")
	f.BoolVarP(&a.flags.quiet, "quiet", "q", false, "no remarks on standard error")
	f.BoolVarP(&a.flags.verbose, "verbose", "v", false, "log what happens in the background")
}

// prepare reads the configuration before a command runs.
func (a *app) prepare(cmd *cobra.Command) error {
	var err error
	if a.config, err = a.settings(); err != nil {
		return err
	}
	color := a.config.Color.Value
	a.out, a.err = a.writer(a.stdout, color), a.writer(a.stderr, color)
	cmd.SetOut(a.stdout)
	return nil
}

func (a *app) tenant() session.Tenant { return session.Tenant(a.config.Tenant.Value) }

// logger logs to standard error with --verbose, else nowhere.
func (a *app) logger() *slog.Logger {
	if !a.flags.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// remark tells something that is no data.
func (a *app) remark(format string, args ...any) {
	if !a.flags.quiet {
		a.err.Println(a.err.Dim(fmt.Sprintf(format, args...)))
	}
}

// runID checks an id that a person gave.
func runID(s string) (run.ID, error) {
	if err := session.ValidID("run", s); err != nil {
		return "", &exitError{exitUsage, err}
	}
	return run.ID(s), nil
}

// hint returns a command as the person who started this one can type it.
func (a *app) hint(args ...string) string {
	words := append([]string{a.invocation()}, args...)
	for _, g := range []struct{ flag, value string }{
		{"store", a.flags.store}, {"server", a.flags.server}, {"context", a.flags.context}, {"creds", a.flags.creds}, {"tenant", a.flags.tenant},
	} {
		if g.value != "" {
			words = append(words, "--"+g.flag, shellWord(g.value))
		}
	}
	return strings.Join(words, " ")
}

// shellWord quotes what a shell would read as more than a word.
func shellWord(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,", r)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
