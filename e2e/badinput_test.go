//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// dev starts `rath dev` at a desk and returns it with its address.
func (d *desk) dev(args ...string) (j *job, url string) {
	d.t.Helper()
	url = fmt.Sprintf("nats://127.0.0.1:%d", natstest.FreePort(d.t))
	j = d.start(append([]string{"dev", "--port", url[strings.LastIndexByte(url, ':')+1:]}, args...)...)
	j.until("address", func() bool { return strings.Contains(j.stdout.String(), url) })
	return j, url
}

// stop ends a node as a service manager does.
func (j *job) stop() {
	j.t.Helper()
	j.signal(syscall.SIGTERM)
	if o := j.wait(); o.code != 0 {
		j.t.Errorf("the node did not stop cleanly: %v", o)
	}
}

// outcomeOf submits a task and returns the run's result.
func outcomeOf(t *testing.T, nc *nats.Conn, workflow, id, body string) (state, code, text string) {
	t.Helper()
	results, err := nc.SubscribeSync("rath.run.default." + id + ".result")
	must.Do(t, err)
	defer results.Unsubscribe()
	request(t, nc, "rath.task.default.anonymous."+workflow, body)
	m, err := results.NextMsg(20 * time.Second)
	if err != nil {
		t.Fatalf("task %s has no result: %v", id, err)
	}
	var r struct {
		State string
		Code  string
		Error string
	}
	if err := json.Unmarshal(m.Data, &r); err != nil {
		t.Fatalf("result %s: %v", m.Data, err)
	}
	return r.State, r.Code, r.Error + " " + string(m.Data)
}

// TestBadTasks sends invalid tasks to a node, as any NATS client may. Each gets a code and
// a reason, is stored with it, and affects no other task.
func TestBadTasks(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	node, url := d.dev()
	nc, err := nats.Connect(url)
	must.Do(t, err)
	defer nc.Close()
	if state, _, text := outcomeOf(t, nc, "agent", "good", `{"id":"good","input":"first"}`); state != "succeeded" {
		t.Fatalf("the good task: %s", text)
	}
	letters := 0
	for _, c := range []struct{ name, workflow, id, body, code, said string }{
		{"unknown workflow", "nosuch", "w1", `{"id":"w1","input":"x"}`, "unknown_workflow", `on offer: agent`},
		{"unknown field", "agent", "w2", `{"id":"w2","input":"x","promt":"y"}`, "malformed", "promt"},
		{"field of another type", "agent", "w3", `{"id":"w3","input":"x","tools":"all"}`, "malformed", "tools"},
		{"input that is too large", "agent", "w4", `{"id":"w4","input":"` + strings.Repeat("x", 300_000) + `"}`, "too_large", "262144"},
		{"unknown session", "agent", "w5", `{"id":"w5","input":"x","fork_of":"nosuch:3"}`, "not_found", "nosuch"},
		{"version that does not exist", "agent", "w6", `{"id":"w6","input":"x","fork_of":"` + sessionOf(t, nc, "good") + `:99"}`, "", "99"},
	} {
		letters++
		state, code, text := outcomeOf(t, nc, c.workflow, c.id, c.body)
		if state != "failed" || c.code != "" && code != c.code || !strings.Contains(text, c.said) {
			t.Errorf("%s: %s %s %s; want failed, %s, and %q", c.name, state, code, text, c.code, c.said)
		}
		d.rath("show", c.id) // with any answer, it must end
	}

	// Without an id there is no run to publish on: only the dead letter is kept.
	request(t, nc, "rath.task.default.anonymous.agent", `{"id":"w7", "input"`)
	letters++

	// The id of another task: its result stays.
	events, err := nc.SubscribeSync("rath.run.default.good.event")
	must.Do(t, err)
	request(t, nc, "rath.task.default.anonymous.agent", `{"id":"good","input":"second"}`)
	letters++
	m, err := events.NextMsg(20 * time.Second)
	if err != nil || !strings.Contains(string(m.Data), "key_reused") {
		t.Errorf("a reused id is told %v, %v", m, err)
	}
	if text := request(t, nc, "rath.query.default.result", `{"run":"good"}`); !strings.Contains(text, "echo: first") {
		t.Errorf("the result of the first task is now %s", text)
	}
	d.rath("submit", "agent", "-m", "third", "--id", "good").want(t, 4, "used for another task") // it is not sent

	// The client rejects a message over NATS's own limit.
	if _, err := nc.Request("rath.task.default.anonymous.agent", make([]byte, 9<<20), time.Second); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("9 MiB: %v", err)
	}
	d.file("big.txt", strings.Repeat("x", 900_000))
	d.rath("submit", "agent", "-f", "big.txt").want(t, 2, "big.txt", "262,144 bytes")

	// A client may not write where the logs are.
	refused := make(chan error, 1)
	other, err := nats.Connect(url, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		select {
		case refused <- err:
		default:
		}
	}))
	must.Do(t, err)
	defer other.Close()
	must.Do(t, errors.Join(other.Publish("rath.ev.1.0.default."+sessionOf(t, nc, "good"), []byte("foreign")), other.Flush()))
	select {
	case err := <-refused:
		if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("foreign bytes: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("a client may publish events")
	}

	if got := deadLetters(t, d, letters); got != letters {
		t.Errorf("%d dead letters are kept, want %d", got, letters)
	}
	if state, _, text := outcomeOf(t, nc, "agent", "after", `{"id":"after","input":"last"}`); state != "succeeded" {
		t.Errorf("a good task after all of it: %s", text)
	}
	node.stop()
	d.rath("show", "good").want(t, 0, "echo: first")
}

// sessionOf returns the session of a run.
func sessionOf(t *testing.T, nc *nats.Conn, id string) string {
	t.Helper()
	var r struct{ Session string }
	text := request(t, nc, "rath.query.default.run", fmt.Sprintf(`{"run":%q}`, id))
	if err := json.Unmarshal([]byte(text), &r); err != nil || r.Session == "" {
		t.Fatalf("run %s: %s, %v", id, text, err)
	}
	return r.Session
}

// deadLetters waits until want dead letters are stored, each with a reason, and returns their
// number. It logs in as the same user's tools do.
func deadLetters(t *testing.T, d *desk, want int) int {
	t.Helper()
	data := must.Get(os.ReadFile(filepath.Join(d.dir, ".rath", "node.json")))(t)
	var at struct{ URL, User, Password string }
	must.Do(t, json.Unmarshal(data, &at))
	nc := must.Get(nats.Connect(at.URL, nats.UserInfo(at.User, at.Password)))(t)
	defer nc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	js := must.Get(jetstream.New(nc))(t)
	s := must.Get(js.Stream(ctx, "DLQ"))(t)
	for {
		info, err := s.Info(ctx)
		if err != nil {
			t.Fatalf("%v; want %d dead letters", err, want)
		}
		if n := int(info.State.Msgs); n >= want {
			for i := range info.State.LastSeq {
				m := must.Get(s.GetMsg(ctx, i+1))(t)
				if !strings.Contains(string(m.Data), `"reason"`) && !strings.Contains(string(m.Data), `"error"`) {
					t.Errorf("a dead letter without reason: %.300s", m.Data)
				}
			}
			return n
		}
		time.Sleep(20 * time.Millisecond) // between questions; ctx bounds them
	}
}

// TestReusedKey: the command line distinguishes a reused id from an answer.
func TestReusedKey(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.rath("run", "-m", "one", "--id", "k").want(t, 0, "echo: one")
	o := d.rath("run", "-m", "two", "--id", "k")
	o.want(t, 4, "task k", "choose another id")
	if strings.Contains(o.stdout, "echo") {
		t.Errorf("it answers: %v", o)
	}
	d.rath("run", "-m", "one", "--id", "k").want(t, 0, "echo: one")
}

// TestStoreInUse: a second process does not get the store, and names the process that has it.
func TestStoreInUse(t *testing.T) {
	d := newDesk(t)
	node, url := d.dev()
	pid := strconv.Itoa(node.cmd.Process.Pid)
	port := strconv.Itoa(natstest.FreePort(t))
	d.rath("dev", "--port", port).want(t, 4, ".rath", "held by process "+pid, "use another directory")
	d.rath("demo").want(t, 4, "held by process "+pid)
	// Commands that need not own it go through the node.
	d.rath("run", "-m", "hello").want(t, 0, "echo: hello")
	// So is the port.
	other := newDesk(t)
	other.rath("dev", "--port", url[strings.LastIndexByte(url, ':')+1:]).want(t, 4, "port")
	node.stop()
	d.rath("show", "@last").want(t, 0, "echo: hello")
}

// TestStoreReadOnly mounts a store read-only; its contents stay.
func TestStoreReadOnly(t *testing.T) {
	d := newDesk(t)
	d.rath("run", "-m", "kept").want(t, 0)
	store := filepath.Join(d.dir, ".rath")
	mount := func(flags uintptr) {
		t.Helper()
		if err := unix.Mount(store, store, "", flags, ""); err != nil {
			t.Fatalf("mount %s (this test needs root): %v", store, err)
		}
	}
	mount(unix.MS_BIND)
	mounted := true
	unmount := func() {
		if mounted {
			mounted = false
			must.Report(t, unix.Unmount(store, 0))
		}
	}
	t.Cleanup(unmount)
	mount(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY)
	d.rath("run", "-m", "lost").want(t, 5, ".rath", "read-only", "use another directory")
	d.rath("ps").want(t, 5, "read-only")
	d.rath("run", "-m", "x", "--store", ".rath/inner").want(t, 5, ".rath/inner", "read-only", "--store")
	unmount()
	d.rath("show", "@last").want(t, 0, "echo: kept")
}

// TestStoreFull fills the disk under a running node: no acknowledged data is lost, no
// unstored data is acknowledged, and with free space the node resumes.
func TestStoreFull(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	must.Do(t, os.Mkdir(filepath.Join(d.dir, "disk"), 0o755))
	disk := filepath.Join(d.dir, "disk")
	if err := unix.Mount("none", disk, "tmpfs", 0, "size=1g"); err != nil {
		t.Fatalf("mount a tmpfs (this test needs root): %v", err)
	}
	t.Cleanup(func() { must.Report(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	fill := func() {
		t.Helper()
		f := must.Get(os.Create(filepath.Join(disk, "fill")))(t)
		defer f.Close()
		// A running node may use some of the free space in the meantime.
		for range 100 {
			var st unix.Statfs_t
			must.Do(t, unix.Fstatfs(int(f.Fd()), &st))
			if st.Bavail == 0 {
				return
			}
			at, err := f.Seek(0, io.SeekEnd)
			if err == nil {
				err = unix.Fallocate(int(f.Fd()), 0, at, int64(st.Bavail)*st.Bsize)
			}
			if err != nil && !errors.Is(err, unix.ENOSPC) {
				t.Fatal(err)
			}
		}
		t.Fatal("the disk does not fill up")
	}
	free := func() {
		t.Helper()
		must.Do(t, os.Remove(filepath.Join(disk, "fill")))
	}
	store := []string{"--store", "disk/store"}
	at := func(args ...string) []string { return append(args, store...) }
	d.rath(at("run", "-m", "before", "--id", "before")...).want(t, 0, "echo: before")

	fill()
	d.rath(at("run", "-m", "x")...).want(t, 5, "disk/store", "full", "free some space")
	free()
	d.rath(at("show", "before")...).want(t, 0, "echo: before")

	node, _ := d.dev(store...)
	fill()
	d.file("large.txt", strings.Repeat("large ", 30_000))
	o := d.rath(at("submit", "agent", "-f", "large.txt", "--id", "during")...)
	if o.code != 5 || !strings.Contains(o.stderr, "full") {
		t.Errorf("a task that cannot be stored: %v; want exit 5, and why", o)
	}
	free()
	node.signal(syscall.SIGTERM) // it may have seen errors of its disk: only its stored data counts
	if o := node.wait(); o.code == -1 {
		t.Errorf("the node did not end: %v", o)
	}
	d.rath(at("run", "-m", "after")...).want(t, 0, "echo: after")
	d.rath(at("show", "before")...).want(t, 0, "echo: before")
}

// TestStoreOnSmallDisk rejects a new store on a disk with too little free space, and the
// message gives the missing amount; with enough space the same directory is accepted. An
// existing store needs only the space that it writes.
func TestStoreOnSmallDisk(t *testing.T) {
	d := newDesk(t)
	disk := filepath.Join(d.dir, "disk")
	must.Do(t, os.Mkdir(disk, 0o755))
	if err := unix.Mount("none", disk, "tmpfs", 0, "size=200m"); err != nil {
		t.Fatalf("mount a tmpfs (this test needs root): %v", err)
	}
	t.Cleanup(func() { must.Report(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	resize := func(size string) {
		t.Helper()
		must.Do(t, unix.Mount("none", disk, "tmpfs", unix.MS_REMOUNT, "size="+size))
	}
	store := []string{"--store", "disk/store"}
	run := func() outcome { return d.rath(append([]string{"run", "-m", "x"}, store...)...) }

	run().want(t, 5, "disk/store", "three quarters", "149 MiB", "256 MiB", "free some space", "--store")
	resize("1g")
	run().want(t, 0, "echo: x")
	resize("100m")
	run().want(t, 0, "echo: x")
}

// TestNATSNotReachable: commands name the address and the remedy. A node reports that it
// waits for NATS, and stops cleanly on request.
func TestNATSNotReachable(t *testing.T) {
	d := newDesk(t)
	url := fmt.Sprintf("nats://127.0.0.1:%d", natstest.FreePort(t))
	for _, args := range [][]string{
		{"ps"},
		{"submit", "agent", "-m", "x"},
		{"run", "-m", "x"},
		{"cluster", "tail", "@last"},
	} {
		d.rath(append(args, "--server", url)...).want(t, 5, url, "start a server there or name another one")
	}
	if _, err := os.Stat(filepath.Join(d.dir, ".rath")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a store was made: %v", err)
	}
	j := d.start("node", "-nats", url)
	j.until("reason to wait", func() bool { return strings.Contains(j.stderr.String(), "waiting for the NATS servers") })
	j.signal(syscall.SIGTERM)
	j.wait().want(t, 0, url)
}

// TestBelowDurability: a node that is to promise fsync does not work on
// servers that acknowledge first and sync later.
func TestBelowDurability(t *testing.T) {
	srv := must.Get(natsserver.Start(t.Context(), &natsserver.Options{
		StoreDir: t.TempDir(), Port: -1, Lazy: true, MaxStore: 16 << 30, NodePassword: "node-password",
	}))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		must.Report(t, srv.Shutdown(ctx))
	})
	d := newDesk(t, "NATS_PASSWORD=node-password")
	o := d.rath("node", "-nats", srv.URL(), "-user", "node")
	o.want(t, 5, "durability level", "fsync")
	if !strings.Contains(o.stderr, "-level") && !strings.Contains(o.stderr, "sync") {
		t.Errorf("no remedy: %v", o)
	}
	o = d.rath("node", "-nats", srv.URL(), "-user", "node", "-level", "replicated")
	o.want(t, 5, "durability level", "replicated")
}

// modelFault answers as a model server that has a problem.
func modelFault(t *testing.T, script string) string {
	t.Helper()
	return modelServer(t, "fault.txtar", []byte(script)).URL + "/v1"
}

// TestBadModels uses model servers with problems, over real sockets: the run fails with the
// reason, and the same session continues with a good one.
func TestBadModels(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	// Without a key no answer is made up: echo answers where it is named.
	newDesk(t, "OPENAI_API_KEY=").at(d).rath("run", "-m", "hi").want(t, 1, "no_key", "OPENAI_API_KEY", "OPENAI_BASE_URL", "--model echo")
	d.rath("run", "-m", "hi").want(t, 0, "echo: hi")
	d.rath("demo", "--live").want(t, 1, "no_key", "OPENAI_API_KEY", "OPENAI_BASE_URL")

	dead := fmt.Sprintf("http://127.0.0.1:%d/v1", natstest.FreePort(t))
	for _, c := range []struct {
		name, base string
		code       int
		said       []string
	}{
		{"401", modelFault(t, "\n-- a --\nstatus: 401\n\nbad key\n"), 1, []string{"OPENAI_API_KEY"}},
		{"429", modelFault(t, "\n-- a --\nstatus: 429\nretry-after: 1h\n\nslow down\n"), 1, []string{"rate"}},
		{"500", modelFault(t, "\n-- a --\nstatus: 500\nretry-after: 10ms\n\nbroken\n"), 1, []string{"broken"}},
		{"truncated", modelFault(t, "\n-- a --\nfault: truncate\n\nThis answer never ends as it should.\n"), 1, []string{"finish"}},
		{"garbage", modelFault(t, "\n-- a --\nfault: garbage\n\nThis answer never ends as it should.\n"), 1, nil},
		{"a web page", modelFault(t, "\n-- a --\nfault: html\n"), 1, nil},
		{"nobody there", dead, 1, []string{dead}},
	} {
		o := newDesk(t, "OPENAI_API_KEY=sk-secret-of-the-test", "OPENAI_BASE_URL="+c.base, "OPENAI_DEFAULT_MODEL=m").at(d).
			rath("run", "-m", "question", "--session", "talk")
		o.want(t, c.code, c.said...)
		if strings.Contains(o.stdout+o.stderr, "sk-secret") {
			t.Errorf("%s: the key is printed: %v", c.name, o)
		}
		t.Logf("%s: %s", c.name, lastLine(o.stderr))
	}

	// A model that hangs ends with the deadline of the task.
	hang := newDesk(t, "OPENAI_BASE_URL="+modelFault(t, "\n-- a --\nfault: hang\n"), "OPENAI_DEFAULT_MODEL=m").at(d)
	node, _ := hang.dev()
	hang.rath("submit", "agent", "-m", "question", "--wait", "--deadline", "2s").want(t, 1, "timed out")
	node.stop()

	// Without the name of a model, the error lists the server's models.
	named := newDesk(t, "OPENAI_BASE_URL="+modelFault(t, "\n-- a --\n\nhello\n")).at(d)
	named.rath("run", "-m", "x").want(t, 1, "no model is named", "scripted")

	d.rath("run", "-m", "and now", "--session", "talk").want(t, 0, "echo: and now")
}

// at moves a desk with its environment to the directory of another one.
func (d *desk) at(other *desk) *desk {
	d.dir = other.dir
	return d
}

// TestBadImport names and skips damaged files and files of a later release; it imports the
// others.
func TestBadImport(t *testing.T) {
	d := newDesk(t)
	data := must.Get(os.ReadFile(filepath.Join("..", "internal", "evidence", "openrath", "testdata", "v1.2.jsonl")))(t)
	good := string(data)
	must.Do(t, os.Mkdir(filepath.Join(d.dir, "sessions"), 0o755))
	lines := strings.SplitAfter(good, "\n")
	newer := strings.Replace(good, `"schema_version": 1`, `"schema_version": 7`, 1)
	corrupt := lines[0] + "{\"record_type\": \x00garbage\n" + strings.Join(lines[1:], "")
	d.file("sessions/good.jsonl", good)
	d.file("sessions/newer.jsonl", strings.ReplaceAll(newer, "5f6c1c52", "6f6c1c52"))
	d.file("sessions/corrupt.jsonl", strings.ReplaceAll(corrupt, "5f6c1c52", "7f6c1c52"))
	o := d.rath("cluster", "import", "sessions")
	o.want(t, 6, "newer.jsonl", "corrupt.jsonl", "2 of 3 files could not be taken over")
	for _, line := range []string{"newer.jsonl:1: ", "corrupt.jsonl:2: "} {
		if !strings.Contains(o.stderr, line) {
			t.Errorf("no %q is told: %v", line, o)
		}
	}
	if got, err := os.ReadFile(filepath.Join(d.dir, "sessions", "corrupt.jsonl")); err != nil || string(got) != strings.ReplaceAll(corrupt, "5f6c1c52", "7f6c1c52") {
		t.Errorf("the damaged file was changed: %v", err)
	}
	// A repetition has no effect.
	d.rath("cluster", "import", "sessions/good.jsonl").want(t, 0, "was there already")
}
