package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/session"
)

// App is one invocation of the command line.
type App struct {
	program string // as typed
	In      io.Reader
	stdout  io.Writer
	stderr  io.Writer
	Getenv  func(string) string

	Out *term.Writer // data
	Err *term.Writer // everything else

	flags  flags
	set    *pflag.FlagSet // the global flags, to see which were given
	Config Settings
}

// flags are the flags of every command.
type flags struct {
	config  string
	store   string
	server  string
	context string
	creds   string
	tenant  string
	format  string
	color   string
	level   string
	quiet   bool
	verbose bool
	plain   bool // no headers
}

// ErrInterrupted is the cause of a context that a signal ended.
var ErrInterrupted = errors.New("interrupted")

// New returns the invocation of a program. Until Prepare has read the configuration, it
// writes in the form that its writers and the environment select.
func New(program string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) *App {
	a := &App{program: program, In: stdin, stdout: stdout, stderr: stderr, Getenv: getenv}
	a.Out, a.Err = a.writer(stdout, "auto"), a.writer(stderr, "auto")
	return a
}

// Run runs one command line of a tree of commands and returns the exit code.
func (a *App) Run(root *cobra.Command, args []string) int {
	ctx, stop := interruptible(context.Background())
	defer stop()
	root.SetArgs(args)
	root.SetIn(a.In)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	a.Out.Note("")
	a.Err.Note("")
	if err == nil {
		err = a.Out.Err()
	}
	return a.report(ctx, err)
}

// interruptible returns a context that ends with ErrInterrupted at the first
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
				os.Exit(ExitInterrupted)
			}
			cancel(ErrInterrupted)
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

func (a *App) writer(w io.Writer, color string) *term.Writer {
	return term.New(w, &term.Options{Env: a.Getenv, Color: color, NoHeaders: a.flags.plain})
}

// once is the value of a flag that may occur once.
type once string

func (o *once) String() string { return string(*o) }
func (o *once) Type() string   { return "string" }

func (o *once) Set(v string) error {
	if *o != "" && string(*o) != v {
		return fmt.Errorf("a command is for one, and %q was given as well: repeat the command for each", string(*o))
	}
	*o = once(v)
	return nil
}

// Globals adds the flags of every command.
func (a *App) Globals(f *pflag.FlagSet) {
	a.set = f
	f.SortFlags = false
	f.StringVar(&a.flags.store, "store", "", "directory of the store (default .rath)")
	f.StringVar(&a.flags.server, "server", "", "NATS server instead of a store, such as nats://host:4222")
	f.StringVar(&a.flags.context, "context", "", "context of the nats command line to connect with")
	f.StringVar(&a.flags.creds, "creds", "", "file with NATS credentials")
	f.Var((*once)(&a.flags.tenant), "tenant", "tenant (default default)")
	f.StringVar(&a.flags.format, "format", "", "output: text, json or jsonl (default text)")
	f.StringVar(&a.flags.color, "color", "", "auto, always or never (default auto)")
	f.StringVar(&a.flags.level, "level", "", "durability of the store: fsync or lazy (default fsync)")
	f.StringVar(&a.flags.config, "config", "", "configuration file")
	f.BoolVar(&a.flags.plain, "no-headers", false, "omit the first line of tables")
	f.BoolVarP(&a.flags.quiet, "quiet", "q", false, "no remarks on standard error")
	f.BoolVarP(&a.flags.verbose, "verbose", "v", false, "log background work")
}

// Prepare reads the configuration before a command runs.
func (a *App) Prepare(cmd *cobra.Command) error {
	var err error
	if a.Config, err = a.settings(); err != nil {
		return err
	}
	if err := a.checkFormat(cmd); err != nil {
		return err
	}
	color := a.Config.Color.Value
	a.Out, a.Err = a.writer(a.stdout, color), a.writer(a.stderr, color)
	// Libraries, net/http among them, print bytes that a server chose with this logger.
	log.SetFlags(0)
	log.SetOutput(slog.NewLogLogger(a.Logger().Handler(), slog.LevelDebug).Writer())
	cmd.SetOut(a.stdout)
	return nil
}

// Tenant is the tenant that the command works for.
func (a *App) Tenant() session.Tenant { return session.Tenant(a.Config.Tenant.Value) }

// Logger logs to standard error with --verbose, else nowhere.
func (a *App) Logger() *slog.Logger {
	if !a.flags.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Quiet reports whether standard error is for errors only.
func (a *App) Quiet() bool { return a.flags.quiet }

// Remark prints a message, which is not data, to standard error.
func (a *App) Remark(format string, args ...any) {
	if !a.flags.quiet {
		a.Err.Println(a.Err.Dim(a.Err.Message(fmt.Sprintf(format, args...))))
	}
}
