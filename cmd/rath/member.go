package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cluster"
	"github.com/rathcluster/rath/internal/demo"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/node"
)

// memberConfig is what a node of a fleet of one machine is told on its standard
// input: it holds secrets, which arguments and the environment would show.
// Standard input ends when the node is to drain, see memberDrain, and when the
// process that started it ends.
type memberConfig struct {
	Name     string   `json:"name"`
	NATS     string   `json:"nats"`
	User     string   `json:"user"`
	Password string   `json:"password"`
	Monitor  []string `json:"monitor"`
	Level    string   `json:"level"`
	Store    string   `json:"store"`
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

// memberCommand is the hidden command that a fleet starts its nodes with.
func (a *app) memberCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "member",
		Short:   "Run one node of a fleet that \"dev --nodes\" started",
		Long:    "Runs one node of a fleet of this machine. \"dev --nodes\" starts it.",
		Example: "  rath dev --nodes 3",
		Hidden:  true,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := a.member(cmd.Context())
			if err != nil {
				a.say(memberUp{Error: err.Error()})
				return silent(exitUnavailable)
			}
			return nil
		},
	}
}

func (a *app) say(up memberUp) {
	if data, err := json.Marshal(up); err == nil {
		a.out.Println(string(data))
	}
}

func (a *app) member(ctx context.Context) error {
	signal.Ignore(os.Interrupt) // a terminal sends it to all; who started this one decides
	dec := json.NewDecoder(a.in)
	var c memberConfig
	if err := dec.Decode(&c); err != nil {
		return fmt.Errorf("member: this command is started by \"dev --nodes\" only: %w", err)
	}
	key, err := cluster.ParseKey(c.Key)
	if err != nil {
		return err
	}
	o := &node.Options{
		Name: c.Name, NATS: c.NATS, User: c.User, Password: c.Password, Monitor: c.Monitor, Level: c.Level, Store: c.Store, Slots: c.Slots,
		Model: c.Model, Unsafe: c.Unsafe, Env: a.getenv, Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
		Gossip: &node.Gossip{Bind: c.Bind, Join: c.Join, Key: key, Label: fleetLabel},
	}
	if c.Demo != "" {
		o.Workflows = append(o.Workflows, demo.FleetRegistration(c.Demo))
		o.Models, err = demoModels(c.Pace)
	} else {
		o.Models, err = a.scriptModels(c.Script)
	}
	if err != nil {
		return err
	}
	starting, cancel := context.WithCancel(ctx)
	defer cancel()
	gone := make(chan struct{})
	var told bool // to drain, to be read after gone
	go func() {   // ends with the process: a read cannot be cut off
		rest, _ := io.ReadAll(io.MultiReader(dec.Buffered(), a.in))
		told = strings.TrimSpace(string(rest)) == memberDrain
		close(gone)
		cancel()
	}()
	n, err := node.Start(starting, o)
	if err != nil {
		return err
	}
	a.say(memberUp{Incarnation: n.Incarnation()})
	select {
	case <-ctx.Done():
	case <-gone:
		if !told {
			return a.orphaned(n)
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
				return a.orphaned(n)
			}
			gone = nil // it waits
		}
	}
}

// orphaned ends a node whose server was killed: what it holds cannot be given back,
// and is taken up when there is a server again, as after a crash.
func (a *app) orphaned(n *node.Instance) error {
	closed := make(chan error, 1)
	go func() { closed <- n.Close() }() // or ends with the process
	limit := time.NewTimer(orphanStop)
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
	script, err := demo.Script()
	if err != nil {
		return nil, err
	}
	for i := range script.Rules {
		r := &script.Rules[i].Reply
		r.Delay, r.Gap = time.Duration(pace)*r.Delay, time.Duration(pace)*r.Gap
	}
	model, err := scripted.New(script, nil)
	if err != nil {
		return nil, err
	}
	return everyKind{model}, nil
}

// member is a node of a fleet, as the process that started it sees it.
type member struct {
	name        string
	incarnation string
	pid         int
	log         string // file
	config      memberConfig

	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{} // closed when the process has ended
	err   error         // how; to be read after done
}

// fleet are the nodes of one machine that this process started.
type fleet struct {
	exe   string
	mu    sync.Mutex
	nodes []*member
	// died gets each node whose process ended.
	died chan *member
}

// memberDrain is what a node is told before its standard input ends, if it is to
// drain. If that ends without it, who started the node was killed.
const memberDrain = "drain"

// orphanStop bounds how long a node goes on once the process that started it has
// ended without a word, and its server with it: nothing can be given back.
const orphanStop = 3 * time.Second

// memberStart bounds how long a node takes to be up.
const memberStart = time.Minute

// startFleet starts nodes on the server of a node in this process.
func (a *app) startFleet(ctx context.Context, s *system, names []string, base memberConfig) (f *fleet, err error) {
	f = &fleet{died: make(chan *member, 4*len(names))}
	if f.exe, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("find this program, to start it again: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
		}
	}()
	o := s.node.Member()
	base.NATS, base.User, base.Password, base.Monitor, base.Level = o.NATS, o.User, o.Password, o.Monitor, o.Level
	store, err := filepath.Abs(a.config.Store.Value)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	ports, err := freePorts(len(names))
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		c := base
		c.Name, c.Store, c.Bind = name, filepath.Join(store, "nodes", name), loopback(ports[i])
		wg.Go(func() { errs[i] = f.start(ctx, c) })
	}
	wg.Wait()
	return f, errors.Join(errs...)
}

// loopback is the address of a port that only this machine reaches.
func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// start starts one node and returns when it is up.
func (f *fleet) start(ctx context.Context, c memberConfig) error {
	if err := os.MkdirAll(c.Store, 0o700); err != nil {
		return fmt.Errorf("node %s: %w", c.Name, err)
	}
	m := &member{name: c.Name, config: c, log: filepath.Join(c.Store, "log"), done: make(chan struct{})}
	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("node %s: %w", c.Name, err)
	}
	defer log.Close()
	m.cmd = exec.Command(f.exe, "member")
	m.cmd.Stderr = log
	if m.stdin, err = m.cmd.StdinPipe(); err != nil {
		return fmt.Errorf("node %s: %w", c.Name, err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("node %s: %w", c.Name, err)
	}
	if err := m.cmd.Start(); err != nil {
		return fmt.Errorf("node %s: %w", c.Name, err)
	}
	m.pid = m.cmd.Process.Pid
	f.mu.Lock()
	f.nodes = append(f.nodes, m)
	f.mu.Unlock()
	said := make(chan memberUp, 1)
	go func() { // ends with the process, and closes done
		var up memberUp
		if err := json.NewDecoder(out).Decode(&up); err != nil {
			up.Error = "it said nothing"
		}
		said <- up
		_, _ = io.Copy(io.Discard, out)
		m.err = m.cmd.Wait()
		close(m.done)
		select {
		case f.died <- m:
		default: // nobody listens any more
		}
	}()
	err = json.NewEncoder(m.stdin).Encode(c)
	if err != nil {
		return fmt.Errorf("node %s: %w", c.Name, err)
	}
	limit := time.NewTimer(memberStart)
	defer limit.Stop()
	select {
	case up := <-said:
		if up.Error != "" {
			return fmt.Errorf("node %s did not start: %s; its log is %s", c.Name, up.Error, m.log)
		}
		m.incarnation = up.Incarnation
		return nil
	case <-limit.C:
		return fmt.Errorf("node %s is not up after %s: %w; its log is %s", c.Name, memberStart, context.DeadlineExceeded, m.log)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// living returns the nodes whose processes have not ended, by name.
func (f *fleet) living() []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*member
	for _, m := range f.nodes {
		select {
		case <-m.done:
		default:
			all = append(all, m)
		}
	}
	return sortedBy(all, func(a, b *member) int { return strings.Compare(a.name, b.name) })
}

// of returns the node of an incarnation, nil for another one.
func (f *fleet) of(incarnation string) *member {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.nodes {
		if m.incarnation == incarnation {
			return m
		}
	}
	return nil
}

// kill ends a node at once, as kill -9 does, and returns when it has ended.
func (f *fleet) kill(m *member) error {
	if err := m.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill node %s: %w", m.name, err)
	}
	<-m.done
	return nil
}

// memberStop bounds how long the nodes take to drain.
const memberStop = 45 * time.Second

// stop drains all nodes and returns when their processes have ended.
func (f *fleet) stop() error {
	var errs []error
	living := f.living()
	for _, m := range living {
		_, _ = io.WriteString(m.stdin, memberDrain+"\n") // it may have ended meanwhile
		_ = m.stdin.Close()
	}
	limit := time.NewTimer(memberStop)
	defer limit.Stop()
	for _, m := range living {
		select {
		case <-m.done:
		case <-limit.C:
			limit.Reset(0)
			errs = append(errs, fmt.Errorf("node %s did not drain in %s and was killed; its runs go on at the next start", m.name, memberStop), f.kill(m))
		}
	}
	return errors.Join(errs...)
}

// ended says how a node's process ended.
func (m *member) ended() string {
	if m.err == nil {
		return "drained"
	}
	if e, ok := errors.AsType[*exec.ExitError](m.err); ok {
		if s, ok := e.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			return "died: " + s.Signal().String()
		}
		return "died: " + e.Error()
	}
	return "died: " + m.err.Error()
}

// Nodes of a fleet listen on ports below those that Linux, macOS and Windows give to
// outgoing connections: one that was found free is not taken by a connection before
// its node is up, nor while a node that died is started again.
const firstPort, portCount = 10_000, 10_000

// freePorts finds so many TCP ports of this machine that nobody listens on. It lets
// them go together, because one that is free again may be found again.
func freePorts(n int) ([]int, error) {
	var ports []int
	for tries := 1; len(ports) < n; tries++ {
		port := firstPort + rand.IntN(portCount)
		l, err := net.Listen("tcp", loopback(port))
		switch {
		case err == nil:
			defer l.Close()
			ports = append(ports, port)
		case tries > 1000: // all others that were tried are somebody's
			return nil, fmt.Errorf("find a free port: %w", err)
		}
	}
	return ports, nil
}
