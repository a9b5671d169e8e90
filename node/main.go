package node

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/protection"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/docker"
)

// Run starts a node and drains it when ctx ends. It returns when everything
// that it began has ended.
func Run(ctx context.Context, opts *Options) error {
	n, err := Start(ctx, opts)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-n.Drained():
	case err = <-n.Failed():
	}
	return errors.Join(err, n.Close())
}

// Main is the main function of a node with your workflows: it reads flags and
// the environment, runs until SIGINT or SIGTERM, drains and exits. A second
// signal exits at once.
func Main(rs ...flow.Registration) {
	docker.Reexec()
	os.Exit(Execute(os.Args[1:], &Options{Workflows: rs}))
}

// RouterMain is the main function of a router, with the flags of a node.
func RouterMain() {
	docker.Reexec()
	os.Exit(Execute(os.Args[1:], &Options{Fleet: Fleet{Routing: RouteOnly}}))
}

// Execute is Main or RouterMain for a larger program. args are the arguments after the
// program's name. opts hold the options that have no flag or environment variable
// (Fleet.Routing, Workflows, Tools, Models.Source, Sandbox.Backends, OnWarning); nil is
// none. Execute returns the exit code. The program has called docker.Reexec before, or local.Reexec,
// with which it offers no containers.
func Execute(args []string, opts *Options) int {
	var o Options
	if opts != nil {
		o = *opts
	}
	return runMain(args, os.Getenv, os.Stdin, os.Stdout, os.Stderr, &o)
}

// options adds the flags and the environment of a node to its options. It prints errors.
func options(args []string, env func(string) string, stderr io.Writer, base *Options) (*Options, error) {
	o, r := *base, base.Fleet.Routing
	flags := flag.NewFlagSet(program(r), flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintf(stderr, "Usage of %s:\n", flags.Name())
		flags.PrintDefaults()
		fmt.Fprint(stderr, memoryUsage)
	}
	parse, err := o.flags(flags, env)
	if err == nil {
		if err := flags.Parse(args); err != nil {
			return nil, err // flags has printed it to stderr
		}
		err = parse()
	}
	if err != nil {
		complain(stderr, r, err)
		return nil, err
	}
	return &o, nil
}

// flags adds the flags and the environment of a node to its options. parse completes the
// options when the flags are parsed.
func (o *Options) flags(flags *flag.FlagSet, env func(string) string) (parse func() error, err error) {
	o.Env, o.NATS.Password = env, env("NATS_PASSWORD")
	if o.Fleet.Routing == RouteOnly {
		o.HTTP.flags(flags, env)
	} else {
		if err := o.Fleet.Routing.set(or(env("RATH_ROUTERS"), "false")); err != nil {
			return nil, fmt.Errorf("RATH_ROUTERS: %w", err)
		}
		flags.BoolFunc("routers", "routers run beside this node: leave the workflows auto and fanout to them (RATH_ROUTERS=true)", o.Fleet.Routing.set)
	}
	flags.StringVar(&o.Dev, "dev", env("RATH_DEV"), "join the \"rath dev\" of this store `directory`, such as .rath (RATH_DEV)")
	flags.StringVar(&o.Name, "name", env("RATH_NAME"), "stable `name` of the node, such as its pod's (RATH_NAME)")
	flags.StringVar(&o.Store, "store", or(env("RATH_STORE"), DefaultStore), "`directory` of this node (RATH_STORE)")
	flags.StringVar(&o.SigningKey, "signing-key", env("RATH_SIGNING_KEY"), "private key `file` of ssh-keygen to sign results of ended runs; a node with its own server creates one in its store (RATH_SIGNING_KEY)")
	flags.StringVar(&o.MCPList, "mcp", env("RATH_MCP"), "`file` with the list of MCP servers: commands, URLs, tokens by reference (RATH_MCP)")
	flags.StringVar(&o.Agents, "agents", env("RATH_AGENTS"), "`directory` of agents in files NAME.md, which are offered as workflows and as tools (RATH_AGENTS)")
	flags.StringVar(&o.Checks, "checks", env("RATH_CHECKS"), "`file` with commands to run after a model has edited files (RATH_CHECKS)")
	flags.StringVar(&o.Rules, "rules", env("RATH_RULES"), "`file` with the rules that allow, ask about and refuse calls of models, or \"default\" (RATH_RULES)")
	if o.Fleet.Routing != RouteOnly {
		flags.StringVar(&o.Targets, "targets", env("RATH_TARGETS"), "`file` with the targets of notifications, and rules for them: questions, failed and stuck runs (RATH_TARGETS)")
	}
	flags.IntVar(&o.Slots, "slots", 0, "number of concurrent `runs` (64)")
	flags.DurationVar(&o.Drain, "drain", actors.DefaultDrain, "`time` for running steps when the node stops")
	flags.StringVar(&o.Models.Default, "model", env("RATH_MODEL"), "default `model` (RATH_MODEL)")
	flags.StringVar(&o.Models.List, "models", env("RATH_MODELS"), "`file` with the list of models: servers, keys by reference, prices, fallbacks (RATH_MODELS)")
	flags.StringVar(&o.HTTP.Health, "health", env("RATH_HEALTH"), "`address` of /livez, /readyz, /waiting and /metrics; a port alone is this machine only (RATH_HEALTH)")
	o.NATS.flags(flags, env)
	parseFleet, parseSandbox := o.Fleet.flags(flags, env), o.Sandbox.flags(flags, env)
	return func() error {
		if flags.NArg() > 0 {
			return fmt.Errorf("node: unexpected argument %q; see -help", flags.Arg(0))
		}
		if err := parseSandbox(); err != nil {
			return err
		}
		if o.Dev != "" {
			return o.devOnly(flags)
		}
		return parseFleet()
	}, nil
}

// flags adds the flags of the servers.
func (s *NATS) flags(flags *flag.FlagSet, env func(string) string) {
	flags.StringVar(&s.URL, "nats", env("NATS_URL"), "`URL` of the NATS servers; without it the node starts its own (NATS_URL)")
	flags.StringVar(&s.CredsFile, "creds", env("NATS_CREDS"), "NATS credentials `file` (NATS_CREDS)")
	flags.StringVar(&s.RootCAs, "ca", env("NATS_CA"), "PEM `file` with the certificate authorities of the NATS servers (NATS_CA)")
	flags.StringVar(&s.User, "user", env("NATS_USER"), "NATS `user` (NATS_USER; the password is NATS_PASSWORD)")
	flags.StringVar(&s.Level, "level", or(env("RATH_LEVEL"), "fsync"), "durability: fsync, replicated or lazy (RATH_LEVEL)")
	flags.IntVar(&s.Replicas, "replicas", 1, "`number` of replicas on external servers")
	flags.IntVar(&s.Port, "port", 4222, "`port` on 127.0.0.1 of the node's own NATS server; 0 is none")
	flags.Func("monitor", "monitoring `address` of an external server, to verify level fsync; can be given again", func(address string) error {
		s.Monitor = append(s.Monitor, address)
		return nil
	})
}

// flags adds the flags of the pool and of gossip. parse reads the flags of gossip.
func (f *Fleet) flags(flags *flag.FlagSet, env func(string) string) (parse func() error) {
	flags.StringVar(&f.Pool, "pool", env("RATH_POOL"), "`pool` of the node; all nodes of one offer the same workflows (RATH_POOL; default)")
	bind := flags.String("gossip", env("RATH_GOSSIP"), "`address` to listen on for the other nodes of a fleet, UDP and TCP (RATH_GOSSIP)")
	advertise := flags.String("advertise", env("RATH_ADVERTISE"), "`address` of this node for them (RATH_ADVERTISE)")
	join := flags.String("join", env("RATH_JOIN"), "`addresses` of other nodes, or a DNS name for them, separated by commas (RATH_JOIN)")
	keyFile := flags.String("gossip-key-file", env("RATH_GOSSIP_KEY_FILE"), "`file` with the shared key of the nodes; further lines are other accepted keys (RATH_GOSSIP_KEY_FILE)")
	label := flags.String("label", env("RATH_GOSSIP_LABEL"), "`name` of the fleet; nodes of others are rejected (RATH_GOSSIP_LABEL)")
	return func() (err error) {
		f.Gossip, err = gossipFrom(*bind, *advertise, *join, *keyFile, *label)
		return err
	}
}

// flags adds the flags of sandboxes. parse reads limits, networks and ranges.
func (s *Sandbox) flags(flags *flag.FlagSet, env func(string) string) (parse func() error) {
	flags.BoolVar(&s.Unsafe, "unsafe", false, "let models run unconfined commands")
	limits := flags.String("sandbox-limits", env("RATH_SANDBOX_LIMITS"), "`limits` of each sandbox, such as memory=512m,cpus=1.5,disk=2g,pids=200 (RATH_SANDBOX_LIMITS)")
	flags.StringVar(&s.Docker.Image, "sandbox-image", env("RATH_SANDBOX_IMAGE"), "offer the sandbox \"docker\": containers of the engine of this machine, of this `image` (RATH_SANDBOX_IMAGE; DOCKER_HOST is the engine)")
	flags.StringVar(&s.Docker.Runtime, "sandbox-runtime", env("RATH_SANDBOX_RUNTIME"), "`runtime` of the engine for them, such as runsc (RATH_SANDBOX_RUNTIME)")
	flags.IntVar(&s.Docker.Warm, "sandbox-warm", 1, "`containers` to keep ready for each image and limits")
	network := flags.String("sandbox-network", env("RATH_SANDBOX_NETWORK"), "the maximum `network` of tasks: none, open, or list:HOST,HOST (RATH_SANDBOX_NETWORK; any list of hosts)")
	flags.StringVar(&s.Secrets, "sandbox-secrets", env("RATH_SANDBOX_SECRETS"), "`headers` for the sandbox proxy to add to requests, one per line as HOST HEADER: VALUE with ${NAME} of the environment (RATH_SANDBOX_SECRETS)")
	private := flags.String("sandbox-private", env("RATH_SANDBOX_PRIVATE"), "permitted private `ranges` of listed hosts, such as 10.1.0.0/16 (RATH_SANDBOX_PRIVATE)")
	podFlags(flags, env, &s.Kubernetes)
	openSandboxFlags(flags, env, &s.OpenSandbox)
	return func() (err error) {
		if s.Limits, err = sandbox.ParseLimits(*limits); err != nil {
			return err
		}
		if s.Network, err = sandbox.ParseNetwork(*network); err != nil {
			return err
		}
		s.Private, err = ParsePrivate(*private)
		return err
	}
}

// program returns the program's name for its messages.
func program(r Routing) string {
	if r == RouteOnly {
		return "router"
	}
	return "node"
}

// complain prints the reason why the program ends. Errors of this package begin with
// its name; complain replaces that prefix with the program's name.
func complain(stderr io.Writer, r Routing, err error) {
	fmt.Fprintf(stderr, "%s: %s\n", program(r), strings.TrimPrefix(err.Error(), "node: "))
}

// devOnly makes a node that joins `rath dev` use the servers and gossip of `rath dev`
// instead of flags, and take its own directory from -store only: RATH_STORE is the
// store of `rath dev`.
func (o *Options) devOnly(flags *flag.FlagSet) error {
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for _, name := range []string{"nats", "creds", "ca", "user", "level", "replicas", "monitor", "port", "gossip", "advertise", "join", "gossip-key-file", "label"} {
		if given[name] {
			return fmt.Errorf("node: -dev sets the value of -%s: omit one of them", name)
		}
	}
	if !given["store"] {
		o.Store = ""
	}
	return nil
}

// runMain runs a node until it is asked to stop. It starts the node again whenever the
// `rath dev` that the node joined is restarted.
func runMain(args []string, env func(string) string, stdin io.Reader, stdout, stderr io.Writer, base *Options) int {
	o, err := options(args, env, stderr, base)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	o.Logger = slog.New(slog.NewJSONHandler(stderr, nil))
	// Libraries, net/http among them, print bytes that a server chose with this logger.
	log.SetFlags(0)
	log.SetOutput(slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn).Writer())
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	p := &process{o: o, stderr: stderr}
	if env(supervise.Env) == "true" {
		signal.Ignore(os.Interrupt) // a terminal sends it to all; the process that started this one decides
		signals = signals[1:]
		p.stdout = stdout
		p.ended, p.orphaned = supervise.Ended(stdin)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal ends the process
	TuneMemory(env)
	for {
		code, again := p.run(ctx)
		if !again {
			return code
		}
		o.Logger.Info(`"rath dev" was started again: the node joins it again`, "dev", o.Dev)
	}
}

// process is a node that is a process.
type process struct {
	o      *Options
	stderr io.Writer
	// Of a node that another process started, see package supervise.
	stdout   io.Writer
	ended    <-chan struct{}
	orphaned *bool
}

// run runs the node once; again is whether it is to begin once more.
func (p *process) run(ctx context.Context) (code int, again bool) {
	o := p.o
	starting, cancel := context.WithCancel(ctx)
	defer cancel()
	if p.ended != nil {
		go func() { // ends with starting
			select {
			case <-p.ended:
				cancel()
			case <-starting.Done():
			}
		}()
	}
	n, err := Start(starting, o)
	switch {
	case err != nil && starting.Err() != nil:
		return 0, false // asked to stop before the start had ended
	case errors.Is(err, errDevAgain):
		return 0, true
	case err != nil:
		if p.stdout != nil {
			supervise.Say(p.stdout, supervise.Up{Error: strings.TrimPrefix(err.Error(), "node: ")})
		}
		complain(p.stderr, o.Fleet.Routing, err)
		if errors.Is(err, natsserver.ErrStoreInUse) || errors.Is(err, natsserver.ErrPortInUse) {
			return 4, false
		}
		return 5, false
	}
	if off := protection.Off(); len(off) > 0 {
		o.Logger.Error("this program is for tests only: it lacks protections and will lose or repeat work", "off", off)
	}
	servers := n.URL()
	if n.o.NATS.URL != "" {
		servers = n.link.conn.Conn.Servers() // the address may hold a password
	}
	o.Logger.Info("node is up", "incarnation", n.Incarnation(), "nats", servers, "store", n.o.Store, "level", n.Level())
	if p.stdout != nil {
		supervise.Say(p.stdout, supervise.Up{Incarnation: n.Incarnation()})
	}
	select {
	case <-ctx.Done():
	case <-p.ended:
	case <-n.Drained():
	case err = <-n.Failed():
	}
	again = errors.Is(err, errDevAgain)
	if err == nil {
		o.Logger.Info("node stops: it hands over its runs and accepts no more work")
	}
	if ended := p.close(n); ended != nil || err != nil && !again {
		o.Logger.Error("node ended", "error", errors.Join(err, ended).Error())
		return 1, again
	}
	o.Logger.Info("node ended")
	return 0, again
}

// close closes the node. If the process that started it, and its server, have ended
// without notice, the node cannot give its runs back: they are resumed once there is a
// server again, as after a crash.
func (p *process) close(n *Instance) error {
	closed := make(chan error, 1)
	go func() { closed <- n.Close() }() // or ends with the process
	var late <-chan time.Time
	for ended := p.ended; ; {
		select {
		case err := <-closed:
			return err
		case <-ended:
			ended = nil
			if *p.orphaned {
				late = time.After(supervise.OrphanStop)
			}
		case <-late:
			return fmt.Errorf("node: the process that started it was killed: %w", context.DeadlineExceeded)
		}
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
