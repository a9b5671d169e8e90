package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cluster"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/demo"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/node"
)

// Config is what a node of a fleet of one machine is told on its standard
// input: it holds secrets, which arguments and the environment would show.
// Standard input ends when the node is to drain, see memberDrain, and when the
// process that started it ends.
type Config struct {
	Name     string   `json:"name"`
	NATS     string   `json:"nats"`
	User     string   `json:"user"`
	Password string   `json:"password"`
	Monitor  []string `json:"monitor"`
	Level    string   `json:"level"`
	Store    string   `json:"store"`
	Disk     string   `json:"disk"` // where the server stores
	Bind     string   `json:"bind"`
	Join     []string `json:"join"`
	Key      string   `json:"key"`
	Slots    int      `json:"slots"`
	Model    string   `json:"model,omitempty"`
	Script   string   `json:"script,omitempty"` // a file
	Unsafe   bool     `json:"unsafe,omitempty"`
	// Demo offers the workflow of "demo --nodes" over this directory.
	Demo string `json:"demo,omitempty"`
	// Pace is how many times slower than written the demo's model answers.
	Pace int `json:"pace,omitempty"`
}

// fleetLabel keeps the fleets of one machine apart from others.
const fleetLabel = "rath-dev"

// memberUp is what a node of a fleet says on its standard output when it is up.
type memberUp struct {
	Incarnation string `json:"incarnation"`
	Error       string `json:"error,omitempty"`
}

// Command is the hidden command that a fleet starts its nodes with.
func Command(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:     "member",
		Short:   "Run one node of a fleet that \"dev --nodes\" started",
		Long:    "Runs one node of a fleet of this machine. \"dev --nodes\" starts it.",
		Example: "  rath dev --nodes 3",
		Hidden:  true,
		Args:    app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := runMember(cmd.Context(), a)
			if err != nil {
				say(a, memberUp{Error: err.Error()})
				return app.Silent(app.ExitUnavailable)
			}
			return nil
		},
	}
}

func say(a *app.App, up memberUp) {
	if data, err := json.Marshal(up); err == nil {
		a.Out.Println(string(data))
	}
}

func runMember(ctx context.Context, a *app.App) error {
	signal.Ignore(os.Interrupt) // a terminal sends it to all; the process that started this one decides
	dec := json.NewDecoder(a.In)
	var c Config
	if err := dec.Decode(&c); err != nil {
		return fmt.Errorf("member: this command is started by \"dev --nodes\" only: %w", err)
	}
	key, err := cluster.ParseKey(c.Key)
	if err != nil {
		return err
	}
	o := &node.Options{
		Name: c.Name, NATS: c.NATS, User: c.User, Password: c.Password, Monitor: c.Monitor, Level: c.Level, Store: c.Store, Disk: c.Disk, Slots: c.Slots,
		Model: c.Model, Unsafe: c.Unsafe, Env: a.Getenv, Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
		Gossip: &cluster.Config{Bind: c.Bind, Join: c.Join, Key: key, Label: fleetLabel},
	}
	if c.Demo != "" {
		o.Workflows = append(o.Workflows, demo.FleetRegistration(c.Demo))
		o.Models, err = demoModels(c.Pace)
	} else {
		o.Models, err = a.ScriptModels(c.Script)
	}
	if err != nil {
		return err
	}
	starting, cancel := context.WithCancel(ctx)
	defer cancel()
	gone := make(chan struct{})
	var told bool // to drain, to be read after gone
	go func() {   // ends with the process: a read cannot be cut off
		rest, _ := io.ReadAll(io.MultiReader(dec.Buffered(), a.In))
		told = strings.TrimSpace(string(rest)) == memberDrain
		close(gone)
		cancel()
	}()
	node.TuneMemory(a.Getenv)
	n, err := node.Start(starting, o)
	if err != nil {
		return err
	}
	say(a, memberUp{Incarnation: n.Incarnation()})
	select {
	case <-ctx.Done():
	case <-gone:
		if !told {
			return orphaned(a, n)
		}
	case <-n.Drained():
	case err = <-n.Failed():
	}
	closed := make(chan error, 1)
	go func() { closed <- n.Close() }()
	for {
		select {
		case ended := <-closed:
			return errors.Join(err, ended)
		case <-gone:
			if !told { // killed while this node drains
				return orphaned(a, n)
			}
			gone = nil // it waits
		}
	}
}

// orphaned ends a node whose server was killed: what it holds cannot be given back,
// and is taken up when there is a server again, as after a crash.
func orphaned(a *app.App, n *node.Instance) error {
	closed := make(chan error, 1)
	go func() { closed <- n.Close() }() // or ends with the process
	limit := time.NewTimer(OrphanStop)
	defer limit.Stop()
	select {
	case err := <-closed:
		return err
	case <-limit.C:
		return fmt.Errorf("member: the process that started it was killed: %w", context.DeadlineExceeded)
	}
}

// demoModels answers the demo's model calls from its script.
func demoModels(pace int) (llm.Models, error) {
	model, err := demo.Model(pace)
	if err != nil {
		return nil, err
	}
	return app.AnyKind(model), nil
}

// memberDrain is what a node is told before its standard input ends, if it is to
// drain. If that ends without it, the process that started the node was killed.
const memberDrain = "drain"

// OrphanStop bounds how long a node goes on once the process that started it has
// ended without a word, and its server with it: nothing can be given back.
const OrphanStop = 3 * time.Second
