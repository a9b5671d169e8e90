package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/fleet"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/testkit/load"
	"github.com/rathcluster/rath/internal/workflows/router"
	"github.com/rathcluster/rath/messages"
)

// benchOptions are the flags of "bench".
type benchOptions struct {
	load    load.Options
	input   string
	fanout  int
	nodes   int
	latency time.Duration
	pids    []string
}

// Bench is the command "bench".
func Bench(a *app.App) *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Put bounded load on a cluster and measure it",
		Long: `Submits tasks to the cluster of --server, to the node of this directory or, with
--nodes, to a temporary fleet on this machine. It prints the ended runs per
second, their latency, the number of waiting tasks, and failed and busy ones;
and the processor time of this process, of the nodes of --nodes or of this
directory, and of the processes of --pid. Processes on other machines are not
measured.

Latencies start at the submission: to its acknowledgement (submit), to the start
of the run by the node's clock (claim), and to the result (end). The runs stay
in the cluster's store like any others. An interrupt ends the load and prints
the figures so far.`,
		Example: `  rath cluster bench --nodes 3 --tasks 500 --in-flight 64 --model-latency 50ms
  rath cluster bench --nodes 3 --tasks 5 --in-flight 1 --fanout 64
  rath cluster bench --server nats://nats:4222 --rate 20 --tasks 1200`,
		Args: app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkBench(a, &o); err != nil {
				return app.Usage(cmd, err)
			}
			if o.nodes > 0 {
				return benchFleet(cmd.Context(), a, &o)
			}
			return a.With(cmd.Context(), func(s *app.System) error {
				if s.Own() {
					return app.Fail(app.ExitUnavailable, "no node runs over %s that could take the tasks: start %q, or use --nodes", a.Config.Store.Value, a.Hint("dev"))
				}
				if err := measured(cmd.Context(), s, &o.load); err != nil {
					return err
				}
				return measure(cmd.Context(), a, s, &o)
			})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVar(&o.load.Tasks, "tasks", load.DefaultTasks, "maximum number of tasks")
	fs.IntVar(&o.load.InFlight, "in-flight", load.DefaultInFlight, "maximum number of tasks without a result")
	fs.Float64Var(&o.load.Rate, "rate", 0, "tasks per second (default the rate of results)")
	fs.DurationVar(&o.load.Duration, "duration", load.DefaultDuration, "maximum time of submissions")
	fs.StringVar(&o.load.Workflow, "workflow", load.DefaultWorkflow, "workflow of the tasks, or of their branches")
	fs.StringVar(&o.input, "input", `"say hello"`, "input of the workflow, as JSON")
	fs.IntVar(&o.fanout, "fanout", 0, "branches of a fan-out per task")
	fs.IntVar(&o.nodes, "nodes", 0, "nodes to start for the load, over a temporary store")
	fs.DurationVar(&o.latency, "model-latency", 0, "latency of these nodes' model, such as 50ms")
	fs.StringSliceVar(&o.pids, "pid", nil, "further processes to measure: PID or NAME=PID")
	return cmd
}

// maxBranches bounds --fanout, as the workflow does.
const maxBranches = 1024

// checkBench checks the flags and completes the load.
func checkBench(a *app.App, o *benchOptions) error {
	switch {
	case o.nodes < 0 || o.nodes > fleet.MaxNodes:
		return fmt.Errorf("--nodes %d: want a number from 1 to %d", o.nodes, fleet.MaxNodes)
	case o.nodes > 0 && (a.Config.Server.Given() || a.Config.Context.Given() || a.Config.Store.Given()):
		return fmt.Errorf("--nodes starts a separate fleet: omit --server, --context and --store")
	case o.latency != 0 && o.nodes == 0:
		return fmt.Errorf("--model-latency needs --nodes: the nodes of a cluster choose their models")
	case o.latency < 0 || o.latency > time.Hour:
		return fmt.Errorf("--model-latency %v: want at most an hour", o.latency)
	case o.fanout < 0 || o.fanout > maxBranches:
		return fmt.Errorf("--fanout %d: want a number from 1 to %d", o.fanout, maxBranches)
	case !json.Valid([]byte(o.input)):
		return fmt.Errorf(`--input %s: want JSON, such as '"say hello"'`, o.input)
	case o.load.Tasks < 1 || o.load.Tasks > load.MaxTasks:
		return fmt.Errorf("--tasks %d: want a number from 1 to %d", o.load.Tasks, load.MaxTasks)
	case o.load.InFlight < 1 || o.load.InFlight > load.MaxInFlight:
		return fmt.Errorf("--in-flight %d: want a number from 1 to %d", o.load.InFlight, load.MaxInFlight)
	case o.load.Rate < 0 || o.load.Rate > 1e6:
		return fmt.Errorf("--rate %g: want at most 1000000", o.load.Rate)
	case o.load.Duration <= 0 || o.load.Duration > 24*time.Hour:
		return fmt.Errorf("--duration %v: want more than 0 and at most 24h", o.load.Duration)
	}
	for _, text := range o.pids {
		name, number, named := strings.Cut(text, "=")
		if !named {
			name, number = "process", text
		}
		pid, err := strconv.Atoi(number)
		if err != nil || pid < 1 {
			return fmt.Errorf("--pid %s: want PID or NAME=PID", text)
		}
		o.load.Processes = append(o.load.Processes, load.Process{Name: name, PID: pid})
	}
	o.load.Tenant = a.Tenant()
	input := json.RawMessage(o.input)
	if o.fanout > 0 {
		var err error
		if input, err = json.Marshal(map[string]any{"branches": []any{
			map[string]any{"name": "branch", "workflow": o.load.Workflow, "input": input, "count": o.fanout},
		}}); err != nil {
			return err
		}
		o.load.Workflow = router.FanOut
	}
	o.load.Task = func(int) (messages.Task, error) { return messages.Task{Input: input, Model: a.Config.Model.Value}, nil }
	return nil
}

// benchFleet measures a fleet that it starts for the purpose.
func benchFleet(ctx context.Context, a *app.App, o *benchOptions) (err error) {
	store, err := os.MkdirTemp("", "rath-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(store)) }()
	a.Config.Store.Value = store
	opening, cancel := context.WithTimeout(ctx, app.OpenTimeout)
	defer cancel()
	s, err := fleet.Host(opening, a, -1, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	base := fleet.Config{Script: filepath.Join(store, "model.txtar")}
	base.Slots, _ = strconv.Atoi(a.Config.Slots.Value) // checked when it was read
	script := fmt.Sprintf("-- all --\ndelay: %s\necho: true\ntext: \"echo: \"\n", o.latency)
	if err := os.WriteFile(base.Script, []byte(script), 0o600); err != nil {
		return err
	}
	f, err := fleet.Start(opening, a, fleet.Names(o.nodes), base)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	for _, m := range f.Living() {
		o.load.Processes = append(o.load.Processes, load.Process{Name: "node " + m.Name, PID: m.PID})
	}
	a.Remark("%s of %d slots each are up; the NATS server is in this process", view.Counted(int64(o.nodes), "node"), base.Slots)
	return measure(ctx, a, s, o)
}

// measured adds the processes of the nodes to those that are measured, if they are on
// this machine: the server of a directory is reachable only from here.
func measured(ctx context.Context, s *app.System, o *load.Options) error {
	if s.Remote {
		return nil
	}
	all, err := s.Fleet.Nodes(ctx)
	for _, n := range all {
		_, err := load.CPUTime(n.PID)
		if n.PID == 0 || errors.Is(err, fs.ErrNotExist) { // it died a moment ago
			continue
		}
		o.Processes = append(o.Processes, load.Process{Name: "node " + n.Name, PID: n.PID})
	}
	return err
}

// measure runs the load on a system and prints the results.
func measure(ctx context.Context, a *app.App, s *app.System, o *benchOptions) (err error) {
	if err := s.Offered(ctx, o.load.Workflow); err != nil {
		return err
	}
	c, err := a.OpenStreams(ctx, app.ToAsk, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	o.load.Processes = append(o.load.Processes, load.Self("this process"))
	o.load.Lag = func(ctx context.Context) (int64, error) {
		// Tasks move from the queue to their partition. Reading in the same order
		// counts few of them twice.
		waiting, err := c.Conn.Dispatch.Waiting(ctx)
		if err != nil {
			return 0, err
		}
		n := int64(0)
		for _, w := range waiting {
			n += int64(w.Runs)
		}
		all, err := c.Conn.Streams.Lag(ctx)
		for _, l := range all {
			n += l.Pending + l.Unacked
		}
		return n, err
	}
	r, err := load.Run(ctx, c.Conn, &o.load)
	if err != nil {
		return err
	}
	if done, err := app.EmitOne(a, r); err != nil {
		return err
	} else if !done {
		a.Out.Printf("%s", r.Table())
	}
	switch {
	case context.Cause(ctx) == app.ErrInterrupted:
		return app.Silent(app.ExitInterrupted)
	case r.Failed+r.Unfinished > 0:
		return app.Silent(app.ExitFailed)
	}
	return nil
}
