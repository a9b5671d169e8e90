package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

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
	if err == nil {
		base.Disk, err = filepath.Abs(o.Disk)
	}
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
	slices.SortStableFunc(all, func(a, b *member) int { return strings.Compare(a.name, b.name) })
	return all
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
