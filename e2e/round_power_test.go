//go:build e2e && linux

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/protection"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

var flagCuts = flag.Int("cuts", 5, "how often TestRoundPowerCut cuts the power")

func init() { children["power-node"] = powerNode }

// noiseBytes is the length of the incompressible noise in a commit or a task: it causes
// blocks of 8 MiB to be started, compressed, rewritten and removed all the time.
const noiseBytes = 24 << 10

func noise() string {
	b := make([]byte, noiseBytes/2)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return hex.EncodeToString(b)
}

// powerNode is a node with a workflow of one step. On request it also commits to its own
// sessions, and prints each commit once it is acknowledged.
func powerNode() error {
	n, err := node.Start(context.Background(), &node.Options{
		Store: os.Getenv("RATH_E2E_STORE"), NATS: node.NATS{Port: -1}, Slots: 64, Env: func(string) string { return "" },
		Workflows: []flow.Registration{{Name: "step", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				_, err := flow.Do(ctx, "step", func(context.Context) (int, error) { return 1, nil }, tool.Idempotent)
				return s.With(session.UserText("done")), err
			})
		}}},
	})
	if err != nil {
		return err
	}
	fmt.Println("listening", n.URL())
	var mu sync.Mutex
	play, _ := strconv.Atoi(os.Getenv("RATH_E2E_PLAY"))
	for i := range min(play, 1) * 16 {
		go func() {
			k := session.Key{Tenant: "power", ID: commitlog.IDGenerator{Generation: 1, Partitions: 4}.ID(fmt.Sprint("s", play, "-", i))}
			var at commitlog.Position
			for first := true; ; first = false {
				events := []session.Event{session.ChunkEvent(session.UserText(noise()))}
				if first {
					events = append([]session.Event{session.OpenedEvent(session.Opening{Kind: session.OpenLeaf})}, events...)
				}
				next, err := n.Log().Append(context.Background(), at, commitlog.Commit{Key: k, Root: k.ID, Seq: at.Seq + 1, Epoch: 1, Prev: at.Hash, Events: events})
				if err != nil {
					fmt.Fprintln(os.Stderr, "append:", err)
					return
				}
				at = next
				mu.Lock()
				fmt.Println("commit", k.ID, at.Seq, at.Hash)
				mu.Unlock()
			}
		}()
	}
	err = <-n.Failed()
	return errors.Join(err, n.Close())
}

// poweredNode is a node on a disk whose power is cut.
type poweredNode struct {
	t     *testing.T
	d     *disk
	store string
	said  bytes.Buffer // by the last process, once it has ended
}

func (p *poweredNode) start(play int) (cmd *exec.Cmd, url string, lines *bufio.Scanner) {
	p.t.Helper()
	p.said.Reset()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=power-node", "RATH_E2E_STORE="+p.store, fmt.Sprint("RATH_E2E_PLAY=", play))
	cmd.Stderr = io.MultiWriter(os.Stderr, &p.said)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	must.Do(p.t, err)
	p.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines = bufio.NewScanner(out)
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "listening "); ok {
			return cmd, url, lines
		}
	}
	p.t.Fatal("the node did not start")
	return nil, "", nil
}

// submitted are the tasks that were acknowledged, each of which names its session.
type submitted struct {
	mu  sync.Mutex
	ids []run.ID
}

// submit sends tasks until the node has ended, from another process.
func (s *submitted) submit(ctx context.Context, t *testing.T, url string, play int) {
	c, err := client.Connect(ctx, url, nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	var work sync.WaitGroup
	for w := range 32 {
		work.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := run.ID(fmt.Sprintf("p%d-%d-%d", play, w, i))
				task := messages.Task{ID: id, Session: "named-" + string(id)}
				if i%4 == 0 {
					task.Input, _ = json.Marshal(noise())
				}
				if _, err := c.Submit(ctx, "step", task); err != nil {
					sleep(ctx, 10*time.Millisecond) // too many wait, or the node has ended
					continue
				}
				s.mu.Lock()
				s.ids = append(s.ids, id)
				s.mu.Unlock()
				// Each runs after the cut: a cut can lose only the last few.
				sleep(ctx, 20*time.Millisecond)
			}
		})
	}
	work.Wait()
}

// some reports whether a task was acknowledged.
func (s *submitted) some() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ids) > 0
}

// cut runs until a number of commits, and some task, are acknowledged, and then cuts the
// power.
func (p *poweredNode) cut(play, after int) (commits []acked, tasks []run.ID) {
	p.t.Helper()
	cmd, url, lines := p.start(play)
	ctx, cancel := context.WithCancel(p.t.Context())
	var s submitted
	var work sync.WaitGroup
	work.Go(func() { s.submit(ctx, p.t, url, play) })
	late := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	cut := false
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) != 4 || f[0] != "commit" {
			continue
		}
		a := acked{id: session.ID(f[1])}
		a.seq, _ = strconv.ParseUint(f[2], 10, 64)
		if _, err := hex.Decode(a.hash[:], []byte(f[3])); err != nil {
			p.t.Fatalf("line %q: %v", lines.Text(), err)
		}
		// Commits may be quicker than the first task, whose client has to connect.
		if commits = append(commits, a); len(commits) >= after && s.some() && !cut {
			cut = true
			halt(p.t, cmd.Process)
			p.d.cut()
			must.Do(p.t, cmd.Process.Kill())
		}
	}
	_ = cmd.Wait()
	cancel()
	work.Wait()
	if !cut {
		p.t.Fatalf("the node ended by itself, or was ended after minutes, with %d commits and %d tasks", len(commits), len(s.ids))
	}
	p.d.again()
	return commits, s.ids
}

// lost restarts the node and counts its missing data: commits by the contents of their
// sessions, tasks by whether their runs end in the reported session.
func (p *poweredNode) lost(commits []acked, tasks []run.ID) (lostCommits, lostTasks int) {
	p.t.Helper()
	cmd, url, lines := p.start(0)
	go func() {
		for lines.Scan() {
		}
	}()
	ctx, cancel := context.WithTimeout(p.t.Context(), 8*time.Minute) // thousands of tasks
	defer cancel()
	c := must.Get(client.Connect(ctx, url, nil))(p.t)
	defer c.Close()
	var gone atomic.Int64
	next := make(chan run.ID)
	var work sync.WaitGroup
	for range 16 {
		work.Go(func() {
			for id := range next {
				for {
					r, err := c.Runs.Result(ctx, id)
					if err == nil && r.State == run.Succeeded {
						break
					}
					if ctx.Err() != nil || errors.Is(err, run.ErrUnknownRun) && !waits(ctx, c, id) {
						// It may have been taken between the two questions, and run by now.
						if _, err := c.Runs.Result(ctx, id); ctx.Err() != nil || errors.Is(err, run.ErrUnknownRun) {
							gone.Add(1)
							break
						}
					}
					sleep(ctx, 20*time.Millisecond)
				}
			}
		})
	}
	for _, id := range tasks {
		next <- id
	}
	close(next)
	work.Wait()
	n := must.Get(node.Attach(ctx, &node.Options{Store: p.store}))(p.t)
	lostCommits = missing(ctx, p.t, n.Log(), commits)
	must.Report(p.t, n.Close())
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return lostCommits, int(gone.Load())
}

func waits(ctx context.Context, c *client.Client, id run.ID) bool {
	w, err := c.Runs.Waits(ctx, id)
	return w || err != nil
}

// TestRoundPowerCut repeatedly cuts the power of a node over its own store, each time over
// the remains of the last cut, under commits, tasks and the names of their sessions. No
// acknowledged data is lost. A build without rounds loses some.
func TestRoundPowerCut(t *testing.T) {
	t.Parallel()
	d := newDiskOf(t, 8<<30)
	p := &poweredNode{t: t, d: d, store: filepath.Join(d.mount, "store")}
	rounds := !slices.Contains(protection.Off(), "round")
	sum := 0
	for play := 1; play <= *flagCuts; play++ {
		commits, tasks := p.cut(play, 300+rand.IntN(700))
		if !rounds {
			lost := countLost(t, filepath.Join(p.store, "nats"), "lazy", commits)
			t.Logf("cut %d: lost %d of %d acknowledged commits", play, lost, len(commits))
			if sum += lost; sum > 0 {
				break
			}
			continue
		}
		lostCommits, lostTasks := p.lost(commits, tasks)
		t.Logf("cut %d: lost %d of %d acknowledged commits, %d of %d acknowledged tasks", play, lostCommits, len(commits), lostTasks, len(tasks))
		if sum += lostCommits + lostTasks; sum > 0 {
			t.Fatal("what was acknowledged is lost")
		}
	}
	if !rounds && sum == 0 {
		t.Error("without rounds nothing was lost: this test cannot see a loss")
	}
}

// TestDiskDies: a node whose writes cannot be synced acknowledges no further data and ends
// by itself, with the cause and the remedy.
func TestDiskDies(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	p := &poweredNode{t: t, d: d, store: filepath.Join(d.mount, "store")}
	cmd, _, lines := p.start(1)
	for n := 0; lines.Scan() && n < 100; n++ {
	}
	d.cut()
	late := time.AfterFunc(time.Minute, func() {
		t.Error("it did not end within a minute")
		_ = cmd.Process.Kill()
	})
	after := 0
	for lines.Scan() {
		after++
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it ended without an error")
	}
	late.Stop()
	t.Logf("%d commits were acknowledged, or on their way, when the disk died", after)
	for _, want := range []string{"could not be synced", "repair the disk"} {
		if !strings.Contains(p.said.String(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
}
