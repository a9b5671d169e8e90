package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
)

// Fleet are the nodes of one machine that this process started.
type Fleet struct {
	exe   string
	mu    sync.Mutex
	nodes []*Member
	// Died gets each node whose process ended.
	Died chan *Member
}

// Member is a node of a fleet, as the process that started it sees it.
type Member struct {
	Name        string
	Incarnation string
	PID         int
	Log         string // file
	Config      Config

	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{} // closed when the process has ended
	Err   error         // how; to be read after done
}

// MemberStart bounds how long a node takes to be up.
const MemberStart = time.Minute

// Start starts nodes on the server of a node in this process.
func Start(ctx context.Context, a *app.App, s *app.System, names []string, base Config) (f *Fleet, err error) {
	f = &Fleet{Died: make(chan *Member, 4*len(names))}
	if f.exe, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("find this program, to start it again: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Stop())
		}
	}()
	o := s.Instance.Member()
	base.NATS, base.User, base.Password, base.Monitor, base.Level = o.NATS, o.User, o.Password, o.Monitor, o.Level
	store, err := filepath.Abs(a.Config.Store.Value)
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
		wg.Go(func() { errs[i] = f.Start(ctx, c) })
	}
	wg.Wait()
	return f, errors.Join(errs...)
}

// Start starts one node and returns when it is up.
func (f *Fleet) Start(ctx context.Context, c Config) error {
	if err := os.MkdirAll(c.Store, 0o700); err != nil {
		return fmt.Errorf("node %s: %w", c.Name, err)
	}
	m := &Member{Name: c.Name, Config: c, Log: filepath.Join(c.Store, "log"), done: make(chan struct{})}
	log, err := os.OpenFile(m.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
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
	m.PID = m.cmd.Process.Pid
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
		m.Err = m.cmd.Wait()
		close(m.done)
		select {
		case f.Died <- m:
		default: // the fleet has stopped
		}
	}()
	err = json.NewEncoder(m.stdin).Encode(c)
	if err != nil {
		return fmt.Errorf("node %s: %w", c.Name, err)
	}
	limit := time.NewTimer(MemberStart)
	defer limit.Stop()
	select {
	case up := <-said:
		if up.Error != "" {
			return fmt.Errorf("node %s did not start: %s; its log is %s", c.Name, up.Error, m.Log)
		}
		m.Incarnation = up.Incarnation
		return nil
	case <-limit.C:
		return fmt.Errorf("node %s is not up after %s: %w; its log is %s", c.Name, MemberStart, context.DeadlineExceeded, m.Log)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Living returns the nodes whose processes have not ended, by name.
func (f *Fleet) Living() []*Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*Member
	for _, m := range f.nodes {
		select {
		case <-m.done:
		default:
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b *Member) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Of returns the node of an incarnation, nil for another one.
func (f *Fleet) Of(incarnation string) *Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.nodes {
		if m.Incarnation == incarnation {
			return m
		}
	}
	return nil
}

// Kill ends a node at once, as kill -9 does, and returns when it has ended.
func (f *Fleet) Kill(m *Member) error {
	if err := m.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill node %s: %w", m.Name, err)
	}
	<-m.done
	return nil
}

// memberStop bounds how long the nodes take to drain.
const memberStop = 45 * time.Second

// Stop drains all nodes and returns when their processes have ended.
func (f *Fleet) Stop() error {
	var errs []error
	living := f.Living()
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
			errs = append(errs, fmt.Errorf("node %s did not drain in %s and was killed; its runs go on at the next start", m.Name, memberStop), f.Kill(m))
		}
	}
	return errors.Join(errs...)
}

// Ended says how a node's process ended.
func (m *Member) Ended() string {
	if m.Err == nil {
		return "drained"
	}
	if e, ok := errors.AsType[*exec.ExitError](m.Err); ok {
		if s, ok := e.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			return "died: " + s.Signal().String()
		}
		return "died: " + e.Error()
	}
	return "died: " + m.Err.Error()
}
