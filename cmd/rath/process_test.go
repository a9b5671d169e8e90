package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestCrashAndResume kills the demo inside a tool call and starts it again.
func TestCrashAndResume(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	cmd := startCommand(t, dir, "demo", "--crash")
	if err := cmd.Wait(); err == nil {
		t.Fatal("demo --crash ended well")
	}
	if out := cmd.said(); !strings.Contains(out, "kill -9") || strings.Contains(out, "proof") {
		t.Fatal("demo --crash was not killed, or has shown the proof")
	}
	if runtime.GOOS != "windows" && cmd.ProcessState.ExitCode() != -1 {
		t.Errorf("it exited with %d, want a signal", cmd.ProcessState.ExitCode())
	}
	cmd = startCommand(t, dir, "demo")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the next start: %v", err)
	}
	for line := range strings.Lines(cmd.said()) {
		// The length of the printed commands depends on the path of this program.
		if n := term.Width(strings.TrimRight(line, "\n")); n > 80 && !strings.Contains(line, "go run ") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, want := range []string{"resume  ", "resumes, attempt 2", "ADOPTED into s1", "(rath verify: ok)"} {
		if !strings.Contains(cmd.said(), want) {
			t.Errorf("the next start does not say %q", want)
		}
	}
}

// TestInterruptParks interrupts a run and resumes it.
func TestInterruptParks(t *testing.T) {
	if isPlayed(t) {
		return
	}
	if runtime.GOOS == "windows" {
		t.Log("a process cannot be interrupted from outside here")
		return
	}
	dir := t.TempDir()
	script := "A slow model.\n\n-- work --\nnot result: list_workspace_files\ncall: list_workspace_files {}\n\n-- answer --\ndelay: 6s\n\ndone\n"
	must.Do(t, os.WriteFile(filepath.Join(dir, "slow.txtar"), []byte(script), 0o644))
	must.Do(t, os.Mkdir(filepath.Join(dir, "work"), 0o755))
	cmd := startCommand(t, dir, "run", "-C", "work", "--script", "slow.txtar", "-m", "look around")
	waitFor(t, func() bool {
		found, err := filepath.Glob(filepath.Join(dir, ".rath", "work", "*"))
		return err == nil && len(found) > 0
	})
	other := command(t, "rath ps --store "+filepath.Join(dir, ".rath"), dir)
	if !strings.Contains(other, "share a store while") || !strings.Contains(other, "[exit 4]") {
		t.Errorf("another command says %q, want how to share the store, and exit 4", other)
	}
	if code := cmd.interrupt(); code != app.ExitInterrupted {
		t.Fatalf("exit %d, want %d", code, app.ExitInterrupted)
	}
	_, line, ok := strings.Cut(cmd.said(), "resume it with\n  ")
	if !ok {
		t.Fatal("no way to resume")
	}
	words := split(strings.TrimSpace(line))
	cmd = startCommand(t, dir, words[slices.Index(words, "resume"):]...)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if !strings.Contains(cmd.said(), "done") {
		t.Error("it does not go on with the same model")
	}
}

// TestHungNode: a node holds the store and does not answer. The error reports that, and
// does not suggest starting a node that runs.
func TestHungNode(t *testing.T) {
	dir := t.TempDir()
	store := filepath.Join(dir, ".rath")
	s := must.Get(natsserver.Start(t.Context(), &natsserver.Options{StoreDir: filepath.Join(store, "nats")}))(t)
	defer func() { must.Report(t, s.Shutdown(context.Background())) }()
	must.Do(t, (&supervise.Attachment{PID: os.Getpid(), URL: "nats://127.0.0.1:1"}).Write(store))
	got := command(t, "rath ps --store "+store, dir)
	for _, want := range []string{"does not answer at nats://127.0.0.1:1", "check the process and its log", "[exit 5]"} {
		if !strings.Contains(got, want) {
			t.Errorf("rath ps says %q, want %q", got, want)
		}
	}
}

// TestResumeBeforeLineage resumes a run that is in its session's log and not yet in
// lineage, as happens right after the task was taken.
func TestResumeBeforeLineage(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	t.Chdir(dir)
	var o offering
	srv, err := natsserver.Start(t.Context(), &natsserver.Options{StoreDir: t.TempDir(), Port: -1, Open: true})
	must.Do(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	defer func() { must.Report(t, srv.Shutdown(ctx)) }()
	defer o.offer(t, dir, "nothing")
	if o.node, err = node.Start(t.Context(), &node.Options{
		Store: filepath.Join(dir, ".rath"), NATS: node.NATS{URL: srv.URL(), Level: "lazy"}, Workflows: []flow.Registration{notes("1"), notesApart},
	}); err != nil {
		t.Fatal(err)
	}
	rath := func(args string) string { return command(t, "rath "+args+" --server "+srv.URL(), dir) }
	rath("submit release --id one")
	o.await(t, "one", run.Waiting)

	// The node does not pass on the same records twice.
	nc, err := nats.Connect(srv.URL())
	must.Do(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	must.Do(t, err)
	all, err := js.Stream(ctx, streams.StreamLineage)
	if err == nil {
		err = all.Purge(ctx)
	}
	must.Do(t, err)
	asked, err := nc.SubscribeSync(messages.QuerySubject(session.DefaultTenant, messages.QueryLineage))
	must.Do(t, err)
	cmd := startCommand(t, dir, "resume", "one", "--server", srv.URL())
	for _, what := range []string{"what is newest", "what there is of the run"} {
		if _, err := asked.NextMsgWithContext(ctx); err != nil {
			t.Fatalf("it did not ask %s: %v", what, err)
		}
	}
	rath("cancel one")
	if err := cmd.Wait(); err == nil || !strings.Contains(cmd.said(), "rath: run one cancelled") {
		t.Errorf("%v, want that the run is cancelled", err)
	}
}

// TestNotedRun: a task has its session, and waits for a place in its log. Commands
// report that at once, without reading all runs, and can cancel it.
func TestNotedRun(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	dev, url := startDev(t, dir)
	at, err := supervise.ReadAttachment(filepath.Join(dir, ".rath"))
	must.Do(t, err)
	nc, err := nats.Connect(url, nats.UserInfo(at.User, at.Password))
	must.Do(t, err)
	defer nc.Close()
	subject := streams.KeySubject(streams.BucketAlias, translate.RunAliasKey(session.DefaultTenant, "noted"))
	must.Get(nc.Request(subject, []byte(`{"session":"00000000000000000000-1-0","digest":"x"}`), 10*time.Second))(t)
	asked, err := nc.SubscribeSync(messages.QuerySubject(session.DefaultTenant, messages.QueryRuns))
	if err == nil {
		err = nc.Flush()
	}
	must.Do(t, err)
	for _, c := range []struct{ line, want string }{
		{"show noted", "run noted has not started: its task waits for a node"},
		{"why noted", "run      noted, queued"},
		{"cancel noted", "it ends when a node takes it"},
	} {
		if got := command(t, "rath "+c.line, dir); !strings.Contains(got, c.want) {
			t.Errorf("$ rath %s\n%swant %q", c.line, got, c.want)
		}
	}
	if n, _, err := asked.Pending(); n > 0 || err != nil {
		t.Errorf("all runs were listed %d times, %v", n, err)
	}
	dev.interrupt()
}

// TestDevDrains: the node of "rath dev" ends on request, and a command that waits for
// that returns when its store is free.
func TestDevDrains(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	dev, _ := startDev(t, dir)
	waitFor(t, func() bool { return strings.Contains(command(t, "rath cluster nodes ls", dir), "dev ") })
	if got := command(t, "rath cluster nodes drain dev --wait", dir); got != "> node dev drains\n> node dev has ended\n" {
		t.Fatalf("drain --wait:\n%s", got)
	}
	if err := dev.Wait(); err != nil || !strings.Contains(dev.said(), "draining; open runs resume at the next start") {
		t.Errorf("dev: %v", err)
	}
	if got := command(t, "rath ps", dir); strings.Contains(got, "[exit") {
		t.Errorf("the store is not free:\n%s", got)
	}
}

// TestDev runs a node in a process of its own and reaches it in every possible way.
func TestDev(t *testing.T) {
	if isPlayed(t) {
		return
	}
	if runtime.GOOS == "windows" {
		t.Log("a process cannot be interrupted from outside here")
		return
	}
	dir := t.TempDir()
	dev, url := startDev(t, dir)
	contexts := filepath.Join(dir, ".config", "nats", "context")
	must.Do(t, errors.Join(os.MkdirAll(contexts, 0o755), os.WriteFile(filepath.Join(contexts, "here.json"), []byte(`{"url":"`+url+`"}`), 0o600)))
	for _, c := range []struct {
		line, want string
		code       int
	}{
		{"rath submit agent -m one --wait -q", "echo: one\n", 0},
		{"rath run -m two -q", "echo: two\n", 0},
		{"rath --server " + url + " run -m three -q", "echo: three\n", 0},
		{"NATS_URL=" + url + " rath run -m four -q", "echo: four\n", 0},
		{"NATS_CONTEXT=here rath run -m five -q", "echo: five\n", 0},
		{"rath --context here show @last", "echo: five", 0},
		{"rath diff - @last", "never sent to a sandbox", 3},
		{"rath demo", "in use", 4},
		{"rath run --unsafe -m x", "has its own", 2},
		{"rath submit nosuch -m x --wait -q", "unknown workflow", 3},
		{"rath --server " + url + " doctor", "workflows", 0},
		{"rath session fork @last", "", 0},
	} {
		got := command(t, c.line, dir)
		_, exit, _ := strings.Cut(got, "[exit ")
		code, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(exit), "]"))
		if code != c.code || !strings.Contains(got, c.want) {
			t.Errorf("$ %s\n%swant exit %d and %q", c.line, got, c.code, c.want)
		}
	}
	if code := dev.interrupt(); code != app.ExitOK {
		t.Errorf("dev: exit %d", code)
	}
	if _, err := os.Stat(filepath.Join(dir, ".rath", "node.json")); err == nil {
		t.Error("node.json is left behind")
	}
}

// TestStoreHeldForAMoment: a command waits for another one that holds the store, and so
// does a node that starts.
func TestStoreHeldForAMoment(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	t.Chdir(dir)
	command(t, "RATH_MODEL=echo rath run --id one -m one", dir)
	release := must.Get(natsserver.Hold(filepath.Join(dir, ".rath")))(t)
	list := startCommand(t, dir, "ps")
	time.Sleep(500 * time.Millisecond) // ps may start later, and then finds the store free
	must.Do(t, release())
	if err := list.Wait(); err != nil || !strings.Contains(list.said(), "one") {
		t.Errorf("%v, and it says\n%s", err, list.said())
	}

	release = must.Get(natsserver.Hold(filepath.Join(dir, ".rath")))(t)
	released := make(chan error, 1)
	time.AfterFunc(500*time.Millisecond, func() { released <- release() })
	dev, _ := startDev(t, dir)
	if err := <-released; err != nil {
		t.Fatal(err)
	}
	if code := dev.interrupt(); code != app.ExitOK {
		t.Errorf("dev: exit %d", code)
	}
}

// TestStartAfterKill starts a node over the store of a killed one. Until the node has
// written its credentials, a command finds no node, and never the other one's
// credentials.
func TestStartAfterKill(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	store := filepath.Join(dir, ".rath")
	dev, url := startDev(t, dir)
	killed := must.Get(supervise.ReadAttachment(store))(t)
	must.Do(t, dev.Process.Kill())
	_ = dev.Wait() // it was killed
	startCommand(t, dir, "dev", "--port", url[strings.LastIndexByte(url, ':')+1:])
	for up, until := false, time.Now().Add(30*time.Second); !up; { // without a pause: the moment is short
		before, _ := supervise.ReadAttachment(store)
		n, err := node.Attach(t.Context(), &node.Options{Store: store})
		if err == nil {
			err = n.Close()
		}
		now, _ := supervise.ReadAttachment(store)
		if errors.Is(err, client.ErrDenied) && now == before {
			t.Fatalf("the node listens, and the store says how to log in to another one: %v", err)
		}
		if up = err == nil && now.PID != killed.PID; !up && time.Now().After(until) {
			t.Fatalf("it is not there within 30 s: %v", err)
		}
	}
}
