package node

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/protection"
	"github.com/rathcluster/rath/sandbox/local"
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
	local.Reexec()
	os.Exit(runMain(os.Args[1:], os.Getenv, os.Stderr, RouteHere, rs))
}

// RouterMain is the main function of a router, with the flags of a node.
func RouterMain() {
	local.Reexec()
	os.Exit(runMain(os.Args[1:], os.Getenv, os.Stderr, RouteOnly, nil))
}

// options reads the flags and the environment of a node.
func options(args []string, env func(string) string, stderr io.Writer, r Routing) (*Options, error) {
	o := &Options{Env: env, Password: env("NATS_PASSWORD"), Routing: r}
	if r != RouteOnly {
		if err := o.Routing.set(or(env("RATH_ROUTERS"), "false")); err != nil {
			complain(stderr, r, fmt.Errorf("RATH_ROUTERS: %w", err))
			return nil, err
		}
	}
	flags := flag.NewFlagSet(program(r), flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintf(stderr, "Usage of %s:\n", flags.Name())
		flags.PrintDefaults()
		fmt.Fprint(stderr, memoryUsage)
	}
	flags.StringVar(&o.NATS, "nats", env("NATS_URL"), "`URL` of the NATS servers; without it the node starts one of its own (NATS_URL)")
	flags.StringVar(&o.CredsFile, "creds", env("NATS_CREDS"), "NATS credentials `file` (NATS_CREDS)")
	flags.StringVar(&o.RootCAs, "ca", env("NATS_CA"), "PEM `file` of the authorities that NATS servers' certificates are checked against (NATS_CA)")
	flags.StringVar(&o.User, "user", env("NATS_USER"), "NATS `user` (NATS_USER; the password is NATS_PASSWORD)")
	flags.StringVar(&o.Store, "store", or(env("RATH_STORE"), DefaultStore), "`directory` of this node (RATH_STORE)")
	flags.StringVar(&o.Level, "level", or(env("RATH_LEVEL"), "fsync"), "durability: fsync, replicated or lazy (RATH_LEVEL)")
	flags.IntVar(&o.Replicas, "replicas", 1, "`number` of replicas on external servers")
	flags.IntVar(&o.Port, "port", 4222, "`port` on 127.0.0.1 of the node's own NATS server; 0 is none")
	flags.IntVar(&o.Slots, "slots", 0, "`runs` that execute at once (64)")
	flags.StringVar(&o.Health, "health", env("RATH_HEALTH"), "`address` of /livez, /readyz, /waiting and /metrics; a port alone is this machine only (RATH_HEALTH)")
	flags.DurationVar(&o.Drain, "drain", actors.DefaultDrain, "how `long` steps under way may take when the node stops")
	flags.StringVar(&o.Model, "model", "", "default `model`")
	flags.BoolVar(&o.Unsafe, "unsafe", false, "let models run commands where nothing confines them")
	flags.StringVar(&o.Name, "name", env("RATH_NAME"), "stable `name` of the node, such as its pod's (RATH_NAME)")
	flags.StringVar(&o.Pool, "pool", env("RATH_POOL"), "`pool` of the node; all nodes of one offer the same workflows (RATH_POOL; default)")
	if o.Routing == RouteOnly {
		flags.StringVar(&o.HTTP, "http", env("RATH_HTTP"), "second `address` of the same endpoints, for a service; a port alone is this machine only (RATH_HTTP)")
	} else {
		flags.BoolFunc("routers", "routers run beside this node: leave the workflows auto and fanout to them (RATH_ROUTERS=true)", func(s string) error {
			return o.Routing.set(s)
		})
	}
	bind := flags.String("gossip", env("RATH_GOSSIP"), "`address` to listen on for the other nodes of a fleet, UDP and TCP (RATH_GOSSIP)")
	advertise := flags.String("advertise", env("RATH_ADVERTISE"), "`address` at which they reach this one (RATH_ADVERTISE)")
	join := flags.String("join", env("RATH_JOIN"), "`addresses` of other nodes, or a name that has them, with commas between (RATH_JOIN)")
	keyFile := flags.String("gossip-key-file", env("RATH_GOSSIP_KEY_FILE"), "`file` with the key that the nodes share (RATH_GOSSIP_KEY_FILE)")
	label := flags.String("label", env("RATH_GOSSIP_LABEL"), "`name` of the fleet; others are refused (RATH_GOSSIP_LABEL)")
	flags.Func("monitor", "monitoring `address` of an external server, to verify level fsync; repeat it", func(s string) error {
		o.Monitor = append(o.Monitor, s)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return nil, err // it was told to stderr
	}
	if flags.NArg() > 0 {
		err := fmt.Errorf("node: unexpected argument %q; see -help", flags.Arg(0))
		complain(stderr, r, err)
		return nil, err
	}
	var err error
	if o.Gossip, err = gossipFrom(*bind, *advertise, *join, *keyFile, *label); err != nil {
		complain(stderr, r, err)
	}
	return o, err
}

// program is the name of the program in what it says.
func program(r Routing) string {
	if r == RouteOnly {
		return "router"
	}
	return "node"
}

// complain says why the program ends: errors of this package begin with its
// name, which is not said twice, nor by a router.
func complain(stderr io.Writer, r Routing, err error) {
	fmt.Fprintf(stderr, "%s: %s\n", program(r), strings.TrimPrefix(err.Error(), "node: "))
}

func runMain(args []string, env func(string) string, stderr io.Writer, r Routing, rs []flow.Registration) int {
	o, err := options(args, env, stderr, r)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	o.Workflows = rs
	o.Logger = slog.New(slog.NewJSONHandler(stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal ends the process
	TuneMemory(env)
	n, err := Start(ctx, o)
	if err != nil && ctx.Err() != nil {
		return 0 // told to stop before it had begun
	}
	if err != nil {
		complain(stderr, r, err)
		return 5
	}
	if off := protection.Off(); len(off) > 0 {
		o.Logger.Error("this program is for tests only: it leaves out protections and will lose or repeat work", "off", off)
	}
	servers := n.URL()
	if o.NATS != "" {
		servers = n.conn.Servers() // the address may hold a password
	}
	o.Logger.Info("node is up", "incarnation", n.Incarnation(), "nats", servers, "store", o.Store, "level", n.Level())
	select {
	case <-ctx.Done():
	case <-n.Drained():
	case err = <-n.Failed():
	}
	if err = errors.Join(err, n.Close()); err != nil {
		o.Logger.Error("node ended", "error", err.Error())
		return 1
	}
	return 0
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
