package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/nats/supervise"
)

// Fleet are the nodes of one machine that this process started.
type Fleet struct {
	config Config
	exe    string
	store  string // of the server that they join
	mu     sync.Mutex
	nodes  []*Member
	up     map[string]*Member // nodes that have been up, by incarnation
}

// Start starts nodes that join the server of this process's node, which Host opened.
func Start(ctx context.Context, a *app.App, names []string, c Config) (f *Fleet, err error) {
	for _, path := range []struct {
		to *string
		at string
	}{
		{&c.Models, a.Config.Models.Value}, {&c.MCP, a.Config.MCP.Value}, {&c.Rules, a.Config.Rules.Value}, {&c.Agents, a.Config.Agents.Value}, {&c.Checks, a.Config.Checks.Value},
	} {
		if *path.to = path.at; path.at == "" || path.to == &c.Rules && path.at == "default" {
			continue
		}
		if *path.to, err = filepath.Abs(path.at); err != nil {
			return nil, err
		}
	}
	f = &Fleet{config: c, exe: c.Program, up: map[string]*Member{}}
	if f.exe == "" {
		if f.exe, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("find this program, to start it again: %w", err)
		}
	}
	if f.store, err = filepath.Abs(a.Config.Store.Value); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Stop())
		}
	}()
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { errs[i] = f.first(ctx, a, name) })
	}
	wg.Wait()
	return f, errors.Join(errs...)
}

// first starts one node, and retries if it is a program that fails.
func (f *Fleet) first(ctx context.Context, a *app.App, name string) error {
	for tries, rest := 1, restFirst; ; tries, rest = tries+1, 2*rest {
		err := f.start(ctx, name)
		switch {
		case err == nil, f.config.Program == "", ctx.Err() != nil:
			return err
		case tries == Tries:
			if m := f.newest(name); m != nil && m.ended() {
				return m.given()
			}
			return err
		case tries == 1:
			a.Err.Println(err)
		}
		pause := time.NewTimer(rest)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

// start starts one node and returns when it is up.
func (f *Fleet) start(ctx context.Context, name string) error {
	m, err := f.begin(name)
	if err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	f.mu.Lock()
	f.nodes = append(f.nodes, m)
	f.mu.Unlock()
	if err := m.wait(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.up[m.Incarnation] = m
	return nil
}

// LastWords returns how the node of an incarnation died, with the line of its panic or
// else the last line that its program wrote. It returns "" for a node that lives, has
// drained, or is not of this fleet.
func (f *Fleet) LastWords(incarnation string) string {
	f.mu.Lock()
	m := f.up[incarnation]
	f.mu.Unlock()
	if m == nil || !m.ended() || m.Err == nil {
		return ""
	}
	words := strings.TrimPrefix(m.Ended(), "died: ")
	if line := m.words(); line != "" {
		words += ": " + line
	}
	return words
}

// begin starts the process of a node.
func (f *Fleet) begin(name string) (*Member, error) {
	store := filepath.Join(f.store, "nodes", name)
	if err := os.MkdirAll(store, 0o700); err != nil {
		return nil, err
	}
	m := &Member{Name: name, Log: filepath.Join(store, "log"), said: make(chan supervise.Up, 1), done: make(chan struct{})}
	log, err := os.OpenFile(m.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if at, err := log.Stat(); err == nil {
		m.from = at.Size()
	}
	m.cmd = exec.Command(f.exe, f.config.args(f.store, name, store)...)
	m.cmd.Env, m.cmd.Stderr = f.config.env(), log
	out, err := m.cmd.StdoutPipe()
	if err == nil {
		m.stdin, err = m.cmd.StdinPipe()
	}
	if err == nil {
		err = m.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	m.PID = m.cmd.Process.Pid
	go m.follow(out, log)
	return m, nil
}

// Living returns the nodes whose processes have not ended, by name.
func (f *Fleet) Living() []*Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*Member
	for _, m := range f.nodes {
		if !m.ended() {
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b *Member) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// newest is the last start of a node.
func (f *Fleet) newest(name string) *Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range slices.Backward(f.nodes) {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// Of returns the node of an incarnation, nil if the fleet has none.
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
		supervise.Drain(m.stdin)
	}
	limit := time.NewTimer(memberStop)
	defer limit.Stop()
	for _, m := range living {
		select {
		case <-m.done:
		case <-limit.C:
			limit.Reset(0)
			errs = append(errs, fmt.Errorf("node %s did not drain in %s and was killed; its runs resume at the next start", m.Name, memberStop), f.Kill(m))
		}
	}
	return errors.Join(errs...)
}

const (
	// Tries bounds the starts in a row of a node that ends before it was up for steady.
	Tries  = 5
	steady = 10 * time.Second
	// restFirst and restMost bound the time before a node is started again.
	restFirst = 250 * time.Millisecond
	restMost  = 15 * time.Second
)

// ErrNoneLeft is returned when all nodes of a fleet have drained.
var ErrNoneLeft = errors.New("no node is left; the runs resume at the next start")

// Keep replaces each node that dies, until ctx ends. It reports that to died and
// replaced, from several goroutines; died returns whether the node executed runs. Keep
// returns an error if a node does not stay up, and ErrNoneLeft when all nodes were
// asked to drain and have ended. The death of a node that executed runs does not count
// as a failed try, because its runs may have caused it: a run that ends its nodes comes
// to a review.
func (f *Fleet) Keep(ctx context.Context, died func(*Member) (executed bool), replaced func(*Member)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for _, m := range f.Living() {
		group.Go(func() {
			if err := f.keep(ctx, m.Name, died, replaced); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return ErrNoneLeft
}

// keep is Keep for one node; it returns nil when the node has drained, or ctx ends.
func (f *Fleet) keep(ctx context.Context, name string, died func(*Member) bool, replaced func(*Member)) error {
	tries, rest := 1, restFirst
	for {
		m := f.newest(name)
		select {
		case <-m.done:
		case <-ctx.Done():
			return nil
		}
		if m.Err == nil {
			died(m)
			return nil
		}
		executed := died(m)
		switch {
		case executed, time.Since(m.up) >= steady && m.Incarnation != "":
			tries, rest = 1, restFirst
		case m.Incarnation == "" || !m.signaled():
			tries++
		}
		if tries > Tries {
			return m.given()
		}
		pause := time.NewTimer(rest)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil
		}
		rest = min(2*rest, restMost)
		err := f.start(ctx, name)
		switch now := f.newest(name); {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			replaced(now)
		case now == m: // its process was not started
			return err
		case !now.ended(): // it hangs
			return errors.Join(err, f.Kill(now))
		}
	}
}
