//go:build e2e && linux

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/testkit/fleet"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/node"
)

func init() {
	children["node-main"] = func() error {
		node.Main()
		return nil
	}
}

// fill takes all that is free, at once as far as the file system can.
func (d *disk) fill() {
	d.t.Helper()
	f := must.Get(os.Create(filepath.Join(d.mount, "fill")))(d.t)
	defer f.Close()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		var st unix.Statfs_t
		err := unix.Fstatfs(int(f.Fd()), &st)
		if err == nil && st.Bavail == 0 {
			return
		}
		at, seekErr := f.Seek(0, 2)
		if err = errors.Join(err, seekErr); err == nil {
			err = unix.Fallocate(int(f.Fd()), 0, at, int64(st.Bavail)*st.Bsize)
		}
		if errors.Is(err, unix.ENOSPC) { // the rest is reserved for the file system
			_, err = f.WriteAt(make([]byte, st.Bsize), at)
			if errors.Is(err, unix.ENOSPC) {
				return
			}
		}
		must.Do(d.t, err)
	}
	d.t.Fatal("the disk does not fill up")
}

// free gives it back.
func (d *disk) free() {
	d.t.Helper()
	must.Do(d.t, os.Remove(filepath.Join(d.mount, "fill")))
}

// submitter submits tasks as another program does, and notes which are
// acknowledged.
type submitter struct {
	nc      *nats.Conn
	input   string // of each task; "" is a large one
	mu      sync.Mutex
	acked   []string
	refused map[string]int
}

// run submits tasks until ctx ends.
func (s *submitter) run(ctx context.Context, name string) {
	input := cmp.Or(s.input, strings.Repeat("large ", 4_000))
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("%s-%d", name, n)
		m, err := s.nc.Request("rath.task.default.anonymous.agent", fmt.Appendf(nil, `{"id":%q,"input":%q}`, id, input), 3*time.Second)
		var ack struct {
			Error *struct {
				Description string `json:"description"`
			} `json:"error"`
		}
		s.mu.Lock()
		switch {
		case err != nil:
			s.refused[err.Error()]++
		case json.Unmarshal(m.Data, &ack) != nil || ack.Error != nil:
			s.refused[string(m.Data)]++
		default:
			s.acked = append(s.acked, id)
		}
		s.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
	}
}

// waitingScript answers quickly, or after a while on request.
const waitingScript = `
-- wait --
last: wait
not result: list_workspace_files
delay: 4s
call: list_workspace_files {}

-- say --

said
`

// TestFullDisk fills the disk under a node at work, faster than the node checks it. A
// submitting command reports it soon, stored data stays readable, and doctor, terminal and
// health report it. With free space everything resumes automatically, and no acknowledged
// data is lost.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for round := range 3 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			fullDisk(t, time.Duration(round)*150*time.Millisecond)
		})
	}
}

func fullDisk(t *testing.T, after time.Duration) {
	at := newDiskOf(t, 700<<20)
	d := newDesk(t)
	d.file("model.txtar", waitingScript)
	store := []string{"--store", filepath.Join(at.mount, "store")}
	rath := func(args ...string) outcome { t.Helper(); return d.rath(append(args, store...)...) }
	dev, url := d.dev(append(store, "--script", "model.txtar")...)
	rath("submit", "agent", "-m", "before", "--id", "before", "--wait").want(t, 0, "said")
	waiting := []string{"w0", "w1", "w2"}
	for _, id := range waiting {
		rath("submit", "agent", "-m", "wait", "--id", id).want(t, 0)
	}
	nc := must.Get(nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond)))(t)
	defer nc.Close()
	s := &submitter{nc: nc, refused: map[string]int{}}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	for i := range 8 {
		load.Go(func() { s.run(ctx, fmt.Sprint("s", i)) })
	}
	dev.until("acknowledged task", s.some)
	time.Sleep(time.Second + after)
	at.fill()
	began := time.Now()
	o := rath("submit", "agent", "-m", strings.Repeat("large ", 4_000), "--id", "during")
	t.Logf("who submits is told after %v", time.Since(began).Round(time.Millisecond))
	if d := time.Since(began); o.code != 5 || !strings.Contains(o.stderr, "disk") || d > 10*time.Second {
		t.Errorf("who submits is told after %v: %v", d, o)
	}
	rath("show", "before").want(t, 0, "said")
	rath("ps", "--limit", "0").want(t, 0, "before")
	var doctor outcome
	dev.until("doctor that tells of the disk", func() bool { doctor = rath("doctor"); return doctor.code != 0 })
	doctor.want(t, 6, "writes", "the disk of the store", "free some space")
	dev.until("refused task", s.none)
	dev.until("node that tells of its disk", func() bool { return strings.Contains(rath("cluster", "nodes", "show", "dev").stdout, "takes nothing") })
	dev.until("line on the terminal", func() bool {
		for line := range strings.Lines(dev.stderr.String()) {
			if strings.HasPrefix(line, "store       disk: ") && strings.Contains(line, "takes nothing") {
				return true
			}
		}
		return false
	})
	stop()
	load.Wait()

	at.free()
	began = time.Now()
	for {
		o := d.start(append([]string{"submit", "agent", "-m", "after", "--id", "after", "--wait"}, store...)...).wait()
		if o.code == 0 {
			break
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("with room again, after %v: %v", time.Since(began), o)
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Logf("with room again a run ends after %v; %d tasks were acknowledged, others: %v", time.Since(began).Round(time.Millisecond), len(s.acked), s.refused)
	dev.until("room", func() bool { return strings.Contains(dev.stderr.String(), "store       disk: has room again") })
	dev.until("doctor that finds nothing", func() bool { return rath("doctor").code == 0 }) // the node's card lags behind its log
	for _, id := range append(append(waiting, "before", "after"), s.acked...) {
		succeeds(t, nc, id)
	}
	if o := rath("show", "during"); o.code != 3 {
		t.Errorf("what was refused is there: %v", o)
	}

	// A node that cannot store ends all the same, and soon.
	for _, id := range waiting {
		rath("submit", "agent", "-m", "wait", "--id", id+"-again").want(t, 0)
	}
	time.Sleep(500 * time.Millisecond)
	at.fill()
	time.Sleep(5 * time.Second)
	began = time.Now()
	dev.signal(syscall.SIGINT)
	dev.wait()
	t.Logf("the node ends %v after Ctrl-C", time.Since(began).Round(time.Millisecond))
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("the node ends %v after Ctrl-C", d)
	}
	at.free()
	dev, url = d.dev(append(store, "--script", "model.txtar")...)
	again := must.Get(nats.Connect(url))(t)
	defer again.Close()
	for _, id := range waiting {
		succeeds(t, again, id+"-again")
	}
	dev.stop()
}

// some reports whether a task was acknowledged.
func (s *submitter) some() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.acked) > 0
}

// none reports whether a task was not acknowledged.
func (s *submitter) none() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.refused) > 0
}

// succeeds waits until a run has succeeded.
func succeeds(t *testing.T, nc *nats.Conn, id string) {
	t.Helper()
	text := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		m, err := nc.Request("rath.query.default.result", fmt.Appendf(nil, `{"run":%q}`, id), 10*time.Second)
		if err != nil {
			text = err.Error()
			continue
		}
		if text = string(m.Data); strings.Contains(text, `"succeeded"`) {
			return
		}
	}
	t.Errorf("run %s has not succeeded: %s", id, text)
}

// TestFullDiskHealth fills the disk of a node that is watched by its endpoints: it is
// alive, and not ready until there is room.
func TestFullDiskHealth(t *testing.T) {
	t.Parallel()
	at := newDiskOf(t, 700<<20)
	health := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
	cmd := exec.Command(os.Args[0], "-store", filepath.Join(at.mount, "store"), "-port", fmt.Sprint(natstest.FreePort(t)), "-health", health, "-drain", "1s")
	j := newDesk(t, childEnv+"=node-main").begin(cmd)
	ask := func(path string) (ok bool, text string) {
		resp, err := http.Get("http://" + health + path)
		if err != nil {
			return false, err.Error()
		}
		defer resp.Body.Close()
		var body struct{ Reason string }
		if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
			return false, err.Error()
		}
		return resp.StatusCode == http.StatusOK, body.Reason
	}
	ready := func() bool { ok, _ := ask("/readyz"); return ok }
	j.until("readiness", ready)
	for range 2 {
		at.fill()
		j.until("reason not to be ready", func() bool {
			ok, text := ask("/readyz")
			return !ok && strings.Contains(text, "the disk of the store")
		})
		if ok, text := ask("/livez"); !ok {
			t.Errorf("it is not alive: %s", text)
		}
		at.free()
		j.until("readiness", ready)
	}
	j.stop()
}

// TestFullDiskOfOneServer fills the disk of one of three NATS servers under load, for
// longer than an election. The fleet continues with the others, and no acknowledged data is
// lost. A server that met a write error stops its JetStream; once there is free space its
// supervisor restarts it, as here, and it catches up.
func TestFullDiskOfOneServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, drawSeed(), shape{servers: 3, nodes: 2, slots: 8, disks: []fleet.Disk{{}, {}, {Size: 512 << 20}}})
	n := newNemesis(w)
	full := w.f.Servers()[2]
	w.work(40*time.Second, 6, func(ctx context.Context) {
		sleep(ctx, 5*time.Second)
		if err := w.f.Fill(full); err != nil {
			w.fatal(err)
		}
		sleep(ctx, 20*time.Second)
		before, began := w.load.acked(), time.Now()
		// A client that waits for results submits no tasks.
		for w.load.acked() == before && time.Since(began) < time.Minute {
			sleep(t.Context(), 50*time.Millisecond)
		}
		t.Logf("another task was acknowledged after %v", time.Since(began).Round(time.Millisecond))
		if w.load.acked() == before {
			w.fail("no task was acknowledged within a minute with a full disk of one server of three")
		}
		if err := errors.Join(w.f.Free(full), n.kill(ctx, 0, full)); err != nil {
			w.fatal(err)
		}
	})
	w.check()
}

// acked returns the number of acknowledged tasks.
func (l *clients) acked() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.tasks {
		if t.Acked {
			n++
		}
	}
	return n
}

// TestSlowDisk limits the disk of a node at work to twenty writes a second, and then to
// one: submissions take longer, and none is lost, rejected or considered dead. The kernel
// delays the node's writes (blkio of cgroups).
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	at := newDiskOf(t, 700<<20)
	d := newDesk(t)
	store := []string{"--store", filepath.Join(at.mount, "store")}
	dev, _ := d.dev(store...)
	rath := func(args ...string) *job { t.Helper(); return d.start(append(args, store...)...) }
	rath("submit", "agent", "-m", "before", "--wait").wait().want(t, 0, "before")
	slow := at.throttle(dev.cmd.Process.Pid)
	slow(20)
	var jobs []*job
	began := time.Now()
	for i := range 4 {
		jobs = append(jobs, rath("submit", "agent", "-m", fmt.Sprint("slow", i), "--wait"))
	}
	time.Sleep(time.Second)
	slow(1)
	time.Sleep(8 * time.Second)
	slow(20)
	for i, j := range jobs {
		j.wait().want(t, 0, fmt.Sprint("echo: slow", i))
	}
	t.Logf("four runs end after %v", time.Since(began).Round(time.Millisecond))
	rath("doctor").wait().want(t, 0, "a test write succeeded")
	slow(0)
	rath("submit", "agent", "-m", "after", "--wait").wait().want(t, 0, "after")
	if text := dev.stderr.String(); strings.Contains(text, "store  ") || strings.Contains(text, "refused  ") {
		t.Errorf("the terminal says\n%s", text)
	}
	dev.stop()
}

// throttle returns a function that limits the writes of a process to the disk per second; 0
// removes the limit.
func (d *disk) throttle(pid int) func(writes int) {
	d.t.Helper()
	var st unix.Stat_t
	must.Do(d.t, unix.Stat(d.mount, &st))
	device := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	put := func(name, text string) {
		d.t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			d.t.Fatalf("throttle a disk (root, and the controller blkio or io of cgroups): %v", err)
		}
	}
	root, file, format, most := "/sys/fs/cgroup/blkio", "blkio.throttle.write_iops_device", "%s %d", 0
	if _, err := os.Stat(root); err != nil {
		root, file, format, most = "/sys/fs/cgroup", "io.max", "%s wiops=%d", 1<<30
		put(filepath.Join(root, "cgroup.subtree_control"), "+io")
	}
	home := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)))(d.t)
	group := filepath.Join(root, fmt.Sprintf("rath-e2e-%d", pid))
	if err := os.Mkdir(group, 0o755); err != nil {
		d.t.Fatalf("throttle a disk: %v (cgroups of the process: %s)", err, home)
	}
	put(filepath.Join(group, "cgroup.procs"), fmt.Sprint(pid))
	d.t.Cleanup(func() { _ = os.Remove(group) }) // the process has ended: its desk is closed before
	return func(writes int) {
		d.t.Helper()
		if writes == 0 {
			writes = most
		}
		put(filepath.Join(group, file), fmt.Sprintf(format, device, writes))
	}
}
