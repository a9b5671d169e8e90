//go:build engine

package node

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

var (
	runsFlag  = flag.Int("runs", 0, "runs of each backend in TestHundredRuns, in place of its own number")
	killsFlag = flag.Int("kills", 0, "kills of its nodes, in place of their number")
)

// TestHundredRuns kills the process of a node with kill -9, once in a command and then
// at random moments, and starts it again over the same store, until each of many runs
// has ended. Each run has a command that writes files and leaves processes behind, in
// its session and in others, some of them with a network of their own. The files of a
// command are stored once, although calls are cut off, and in the end no sandbox has
// leftovers: no process, namespace, mount, control group, container, socket or
// directory.
func TestHundredRuns(t *testing.T) {
	for _, tt := range []struct {
		backend     string
		runs, kills int
		wait        string // of a command, in seconds
	}{
		{"local", 100, 12, "0.1"},
		{"docker", 12, 3, "0.2"},
	} {
		t.Run(tt.backend, func(t *testing.T) {
			var flags []string
			var swept func(store string)
			if tt.backend == "docker" {
				const image = "rath-sandbox:node-test"
				if out, err := exec.Command("docker", "import", os.Getenv("RATH_SANDBOX_IMAGE_TAR"), image).CombinedOutput(); err != nil {
					t.Fatalf("import the image: %v: %s; run the tests with .ci/engine", err, out)
				}
				flags = []string{"-sandbox-image", image, "-sandbox-warm", "0"}
				// A busy engine takes longer to remove a container than a node has to
				// end.
				swept = func(store string) {
					folders := []string{store}
					for end := time.Now().Add(time.Minute); len(folders) > 0 && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
						var err error
						if folders, err = filepath.Glob(filepath.Join(store, "containers", "box-*")); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			killRuns(t, tt.backend, cmp.Or(*runsFlag, tt.runs), cmp.Or(*killsFlag, tt.kills), tt.wait, flags, swept)
			if tt.backend == "docker" {
				noContainers(t)
			}
		})
	}
}

// killRuns runs the test with a backend that the flags of a node offer. swept, if not
// nil, waits for the removals of a sweep while a last node lives.
func killRuns(t *testing.T, backend string, runs, kills int, wait string, offer []string, swept func(store string)) {
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(runs)*6*time.Second)
	defer cancel()
	w := &watched{t: t, store: t.TempDir(), spaces: make(map[string]bool), before: make(map[string]bool)}
	w.eachGroup(func(p string) { w.before[p] = true })
	user, password := srv.Node()
	flags := append([]string{"-nats", srv.URL(), "-user", user, "-level", "lazy", "-store", w.store, "-drain", "1s", "-health", "0"}, offer...)
	start := func() *exec.Cmd {
		cmd := startCommands(t, flags, password)
		w.nodes = append(w.nodes, cmd.Process.Pid)
		return cmd
	}
	node := start() // before a task is submitted: its offer has to be known
	front := member(t, srv, Options{Fleet: Fleet{Routing: RouteOnly}})
	c := must.Get(front.Client(ctx))(t)
	defer c.Close()

	const long = "5.25" // seconds that the command takes, in which the first kill is
	var done, attempts, reviewed atomic.Int64
	var waits sync.WaitGroup
	submit := func(i int) {
		id := run.ID(fmt.Sprintf("%s-%d", backend, i))
		ask := messages.Task{ID: id, Input: script(wait), Sandbox: messages.Sandbox{Backend: backend}}
		if i == 0 {
			ask.Input = script(long)
		}
		if i%10 == 0 {
			ask.Sandbox.Network = "list:example.org"
		}
		must.Get(c.Submit(ctx, "commands", ask))(t)
		waits.Go(func() {
			defer done.Add(1)
			r, err := c.Wait(ctx, id)
			if err != nil || r.State != run.Succeeded {
				t.Errorf("the run %s %s %s: %v", id, r.State, r.Error, err)
				return
			}
			attempts.Add(int64(r.Attempt))
			s, err := c.Sessions.Get(ctx, string(r.Session))
			if err != nil {
				t.Error(err)
				return
			}
			data, err := workspace.Read(ctx, front.Blobs(session.DefaultTenant), s.Placement.Head, "log")
			if err != nil || string(data) != "begin\nend\n" {
				t.Errorf("the files of %s say %q, %v", id, data, err)
			}
		})
	}
	kill := func() {
		time.Sleep(time.Duration(rand.Int64N(int64(300 * time.Millisecond))))
		w.look()
		must.Do(t, node.Process.Kill())
		_ = node.Wait()
		node = start()
	}
	until := func(holds func() bool) {
		for !holds() && ctx.Err() == nil {
			w.look()
			time.Sleep(20 * time.Millisecond)
		}
	}
	// The others follow later: submitting them may take longer than a command.
	submit(0)
	until(func() bool { return w.runs("sleep", long) || done.Load() > 0 })
	if done.Load() > 0 {
		t.Fatal("the first run ended before its command was seen")
	}
	kill()
	for i := range runs - 1 {
		submit(1 + i)
	}
	// A command that reaches a network may have had effects there: where it was cut
	// off, its run asks a person, who approves a repetition.
	answering, stop := context.WithCancel(ctx)
	var answers sync.WaitGroup
	answers.Go(func() {
		for answering.Err() == nil {
			list, err := c.Runs.List(answering, nil)
			for i := range list {
				if err == nil && list[i].State == run.NeedsReview && c.Runs.Resolve(answering, list[i].Run, messages.Control{Decision: run.Again, By: "test", Reason: "it was killed"}) == nil {
					reviewed.Add(1)
				}
			}
			select {
			case <-answering.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	for range kills - 1 {
		// Let some runs end, so that no run is killed each time it begins.
		enough := min(done.Load()+1+rand.Int64N(int64(runs/kills)), int64(runs))
		until(func() bool { return done.Load() >= enough })
		kill()
	}
	waits.Wait()
	stop()
	answers.Wait()
	w.look()
	end := func() {
		must.Do(t, node.Process.Signal(os.Interrupt))
		_ = node.Wait()
	}
	end()
	if swept != nil {
		node = start()
		swept(w.store)
		end()
	}
	t.Logf("%d runs, %d kills, %d attempts, %d answered, %d namespaces seen", runs, kills, attempts.Load(), reviewed.Load(), len(w.spaces))
	if attempts.Load() == int64(runs) || reviewed.Load() == 0 {
		t.Error("the kill in a command hit no run")
	}
	w.gone()
}

// script is a command that writes files, leaves processes behind and takes some
// seconds.
func script(seconds string) []byte {
	return fmt.Appendf(nil, `"echo begin >> log; (while :; do echo x >> noise; sleep 0.05; done) & setsid sh -c 'setsid sleep 4711 & sleep 4712' & sleep %s; echo end >> log"`, seconds)
}

// watched tracks the traces on the host of sandboxes below a store.
type watched struct {
	t      *testing.T
	store  string
	nodes  []int
	before map[string]bool // control groups that other nodes left, whose numbers may come again
	spaces map[string]bool // namespaces that processes of sandboxes were seen in, besides ours
}

// processes returns the processes that work below the store: by directory, environment
// or arguments.
func (w *watched) processes() map[string]string {
	found := make(map[string]string)
	names := must.Get(filepath.Glob("/proc/[0-9]*"))(w.t)
	for _, p := range names {
		// A process may end during the check.
		cwd, _ := os.Readlink(p + "/cwd")
		env, _ := os.ReadFile(p + "/environ")
		line, _ := os.ReadFile(p + "/cmdline")
		if text := cwd + "\x00" + string(env) + string(line); strings.Contains(text, w.store) || strings.Contains(text, "sleep\x00471") {
			found[p] = strings.ReplaceAll(string(line), "\x00", " ")
		}
	}
	return found
}

// runs reports whether there is a process with these arguments.
func (w *watched) runs(args ...string) bool {
	names := must.Get(filepath.Glob("/proc/[0-9]*/cmdline"))(w.t)
	for _, p := range names {
		// A process may end during the check.
		if line, _ := os.ReadFile(p); string(line) == strings.Join(args, "\x00")+"\x00" {
			return true
		}
	}
	return false
}

var kinds = []string{"net", "pid", "mnt", "user", "ipc", "uts"}

// look records the namespaces of running processes.
func (w *watched) look() {
	for p := range w.processes() {
		for _, kind := range kinds {
			own := must.Get(os.Readlink("/proc/self/ns/" + kind))(w.t)
			if name, err := os.Readlink(p + "/ns/" + kind); err == nil && name != own {
				w.spaces[name] = true
			}
		}
	}
}

// left lists the remaining traces.
func (w *watched) left() (left []string) {
	for p, line := range w.processes() {
		left = append(left, "process "+p+" "+line)
	}
	names := must.Get(filepath.Glob("/proc/[0-9]*"))(w.t)
	for _, p := range names {
		for _, kind := range kinds {
			if name, err := os.Readlink(p + "/ns/" + kind); err == nil && w.spaces[name] {
				left = append(left, "namespace "+name+" of "+p)
			}
		}
	}
	mounts := must.Get(os.ReadFile("/proc/self/mountinfo"))(w.t)
	for line := range strings.Lines(string(mounts)) {
		bound := strings.Contains(line, w.store)
		for name := range w.spaces {
			bound = bound || strings.Contains(line, name)
		}
		if bound {
			left = append(left, "mount "+line)
		}
	}
	sockets := must.Get(os.ReadFile("/proc/net/unix"))(w.t)
	for line := range strings.Lines(string(sockets)) {
		if strings.Contains(line, w.store) {
			left = append(left, "socket "+line)
		}
	}
	left = append(left, w.groups()...)
	for _, pattern := range []string{"work/*/*/*", "forks/*", "boxes/*", "containers/box-*"} {
		dirs := must.Get(filepath.Glob(filepath.Join(w.store, pattern)))(w.t)
		for _, dir := range dirs {
			held, _ := filepath.Glob(filepath.Join(dir, "*"))
			left = append(left, fmt.Sprint(dir, " with ", held))
		}
	}
	return left
}

// gone waits until no traces are left, for as long as the kernel may take.
func (w *watched) gone() {
	w.t.Helper()
	var left []string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if left = w.left(); len(left) == 0 {
			return
		}
	}
	w.t.Errorf("%d things are left:\n%.3000s", len(left), strings.Join(left, "\n"))
}

// groups are the control groups that the nodes made for sandboxes, whose names have the
// number of the process.
func (w *watched) groups() (left []string) {
	w.eachGroup(func(p string) {
		for _, pid := range w.nodes {
			if strings.HasPrefix(filepath.Base(p), "rath-box-"+strconv.FormatInt(int64(pid), 36)+"-") && !w.before[p] {
				left = append(left, "control group "+p)
			}
		}
	})
	return left
}

// eachGroup calls a function for each control group of a sandbox.
func (w *watched) eachGroup(do func(p string)) {
	must.Do(w.t, filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), "rath-box-") {
			do(p)
		}
		return nil //nolint:nilerr // one that went meanwhile
	}))
}
