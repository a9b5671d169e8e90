package node

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/workflows/notify"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// receiver is a server of targets: HTTP that answers with a status, and SMTP.
type receiver struct {
	http, mail net.Listener
	mu         sync.Mutex
	status     int
	got        []string // the messages, with the form and the id first
}

func (r *receiver) add(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, text)
}

// with returns the messages that contain all words.
func (r *receiver) with(words ...string) (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range r.got {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) }) {
			all = append(all, text)
		}
	}
	return all
}

func (r *receiver) answers(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

func startReceiver(t *testing.T) *receiver {
	t.Helper()
	listen := func() net.Listener {
		return must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	}
	r := &receiver{http: listen(), mail: listen(), status: 200}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		status := r.status
		r.mu.Unlock()
		r.add(fmt.Sprintf("%d %s %s %s", status, q.URL.Path, q.Header.Get("Webhook-Id"), body))
		w.WriteHeader(status)
	})}
	var work sync.WaitGroup
	work.Go(func() { _ = server.Serve(r.http) })
	work.Go(func() {
		for {
			c, err := r.mail.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "220 here\r\n")
			var text strings.Builder
			for lines := bufio.NewScanner(c); lines.Scan(); {
				text.WriteString(lines.Text() + "\n")
				switch line := lines.Text(); {
				case line == "DATA":
					fmt.Fprint(c, "354 go\r\n")
				case line == "QUIT":
					fmt.Fprint(c, "221 bye\r\n")
				case line == "." || strings.HasPrefix(line, "EHLO") || strings.HasPrefix(line, "MAIL") || strings.HasPrefix(line, "RCPT"):
					fmt.Fprint(c, "250 ok\r\n")
				}
			}
			_ = c.Close()
			r.add("mail " + text.String())
		}
	})
	t.Cleanup(func() { _ = server.Close(); _ = r.mail.Close(); work.Wait() })
	return r
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

const canary = "canary-7d1f"

// targetsOf writes a list of targets at r.
func targetsOf(t *testing.T, r *receiver) (file string, env func(string) string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "targets.yaml")
	must.Do(t, os.WriteFile(file, fmt.Appendf(nil, `
link: https://rath.example.com
targets:
  ops: {form: slack, url: env:OPS, private: true}
  hook: {form: standard, url: env:HOOK, secret: env:KEY, private: [127.0.0.1]}
  post: {form: mail, server: "smtp://%s", from: rath@example.com, to: [ana@example.com], private: true}
rules:
  - {on: [question], workflows: [asks], to: ops, again: {after: 1s, to: post}}
  - {on: [question], workflows: [twice], to: hook}
  - {on: [failed, budget, stuck, deadletter], to: hook}
  - {tenant: other, on: [question, failed], to: ops}
`, r.mail.Addr()), 0o600))
	at := "http://" + r.http.Addr().String()
	values := map[string]string{"OPS": at + "/ops/" + canary, "HOOK": at + "/hook/" + canary, "KEY": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
	return file, func(name string) string { return values[name] }
}

// toldNode starts a node whose list sends to r.
func toldNode(t *testing.T, store string, r *receiver, logs io.Writer, targets bool) (*Instance, *client.Client) {
	t.Helper()
	list, env := targetsOf(t, r)
	work := func(name string, f flow.Func) flow.Registration {
		return flow.Registration{Name: name, Revision: "1", New: func() flow.Workflow { return f }}
	}
	asks := func(ctx context.Context, s session.Session) (session.Session, error) {
		_, err := flow.Approve(ctx, "ship", &flow.AwaitOptions{Title: "SECRET TITLE"})
		return s, err
	}
	o := &Options{
		Store: store, NATS: NATS{Level: "lazy"}, Env: env, Logger: slog.New(slog.NewTextHandler(logs, nil)),
		Workflows: []flow.Registration{
			work("asks", asks), work("quiet", asks),
			work("twice", func(ctx context.Context, s session.Session) (session.Session, error) {
				s, err := asks(ctx, s)
				if err != nil {
					return s, err
				}
				return asks(ctx, s)
			}),
			work("fails", func(_ context.Context, s session.Session) (session.Session, error) {
				return s, errors.New("SECRET TITLE")
			}),
		},
	}
	if targets {
		o.Targets = list
	}
	n := must.Get(Start(t.Context(), o))(t)
	c := must.Get(n.Client(t.Context()))(t)
	t.Cleanup(func() { _ = c.Close(); must.Report(t, n.Close()) })
	return n, c
}

// notifications returns the runs that send, by state.
func notifications(t *testing.T, c *client.Client) map[run.State]int {
	t.Helper()
	states := map[run.State]int{}
	for _, r := range must.Get(c.Runs.List(t.Context(), &client.RunsOptions{Workflow: notify.Workflow}))(t) {
		states[r.State]++
	}
	return states
}

// TestQuestionIsTold: a question reaches its target with a link, and another target if
// nobody answers. An answer in time prevents that. No text of the run, and no secret, is in
// a message, a log or a file.
func TestQuestionIsTold(t *testing.T) {
	t.Parallel()
	r := startReceiver(t)
	store := t.TempDir()
	var logs lockedBuffer
	n, c := toldNode(t, store, r, &logs, true)
	submit := func(workflow, id string) {
		must.Get(c.Submit(t.Context(), workflow, messages.Task{ID: run.ID(id)}))(t)
	}
	submit("quiet", "q0") // no rule names its workflow
	submit("asks", "q1")
	const link = "<https://rath.example.com/t/default/questions/q1/0|Question: run q1 of asks waits for an answer>"
	eventually(t, "told", func() bool { return len(r.with("/ops/", link)) == 1 })
	eventually(t, "told again", func() bool {
		return len(r.with("mail ", "Subject: Still open: run q1 of asks waits for an answer", "https://rath.example.com/t/default/questions/q1/0", "To: ana@example.com")) == 1
	})
	submit("asks", "q2")
	eventually(t, "told", func() bool { return len(r.with("/ops/", "questions/q2/0")) == 1 })
	must.Do(t, c.Questions.Approve(t.Context(), "q2", messages.Control{}))
	eventually(t, "all notifications end", func() bool { s := notifications(t, c); return s[run.Succeeded] == 4 && len(s) == 1 })
	if got := r.with("q2"); len(got) != 1 {
		t.Errorf("an answered question was told %d times: %q", len(got), got)
	}
	if got := r.with("q0"); len(got) > 0 {
		t.Errorf("no rule matches, and this was told: %q", got)
	}
	for _, one := range must.Get(c.Runs.List(t.Context(), nil))(t) {
		if one.Workflow == notify.Workflow {
			t.Errorf("run %s is in the list of runs", one.Run)
		}
	}
	if last := must.Get(c.Runs.Get(t.Context(), messages.Last))(t); last.Run != "q2" {
		t.Errorf("the last run is %s", last.Run)
	}
	if err := n.check(journal.Task{Workflow: notify.Workflow, By: "ana"}); err == nil || !strings.Contains(err.Error(), "write a rule") {
		t.Errorf("a user's notification: %v", err)
	}
	if got := r.with("SECRET TITLE"); len(got) > 0 {
		t.Errorf("messages hold text of the run: %q", got)
	}
	_ = c.Close()
	must.Do(t, n.Close())
	if strings.Contains(logs.String(), canary) {
		t.Error("the log holds the address of a target")
	}
	must.Do(t, filepath.WalkDir(store, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var data []byte
			if data, err = os.ReadFile(path); err == nil && bytes.Contains(data, []byte(canary)) {
				t.Errorf("%s holds the address of a target", path)
			}
		}
		return err
	}))
}

// lockedBuffer is a log that a test reads while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestOneNotification: a failure has one notification with one id: while the target is down,
// and after a node that lost its positions. Failures of notifications have none, and neither
// has the time before the first start.
func TestOneNotification(t *testing.T) {
	t.Parallel()
	r := startReceiver(t)
	store := t.TempDir()
	n, c := toldNode(t, store, r, io.Discard, false)
	must.Get(c.Do(t.Context(), "fails", messages.Task{ID: "before"}, nil))(t)
	_ = c.Close()
	must.Do(t, n.Close())

	r.answers(503)
	n, c = toldNode(t, store, r, io.Discard, true)
	must.Get(c.Submit(t.Context(), "twice", messages.Task{ID: "t1"}))(t)
	eventually(t, "an attempt", func() bool { return len(r.with("503 /hook/", `"run":"t1"`)) == 1 })
	must.Do(t, c.Questions.Approve(t.Context(), "t1", messages.Control{}))
	must.Get(c.Do(t.Context(), "fails", messages.Task{ID: "f1"}, nil))(t)
	eventually(t, "an attempt", func() bool { return len(r.with("503 /hook/", `"run":"f1"`)) == 1 })
	eventually(t, "asked again", func() bool {
		one, err := c.Runs.Get(t.Context(), "t1")
		return err == nil && len(one.Waits) == 1 && one.Waits[0].Step == "1"
	})
	r.answers(200)
	eventually(t, "both questions", func() bool { return len(r.with("200 /hook/", `"run":"t1"`)) == 2 })
	if all := r.with("200 /hook/", `"run":"t1"`); !strings.Contains(all[0], "questions/t1/0") || !strings.Contains(all[1], "questions/t1/1") || len(r.with("503 /hook/", "questions/t1/1")) > 0 {
		t.Errorf("the questions of a run out of order: %q", r.with(`"run":"t1"`))
	}
	eventually(t, "told", func() bool { return len(r.with("200 /hook/", `"run":"f1"`, "run.failed")) == 1 })
	id := strings.Fields(r.with("200 /hook/", `"run":"f1"`)[0])[2]
	if all := r.with(`"run":"f1"`); len(all) != len(r.with(`"run":"f1"`, id)) || !strings.HasPrefix(id, "notify-") {
		t.Errorf("ids of one notification: %q", all)
	}
	r.answers(400)
	must.Get(c.Do(t.Context(), "fails", messages.Task{ID: "f2"}, nil))(t)
	eventually(t, "given up", func() bool { return notifications(t, c)[run.Failed] == 1 })
	r.answers(200)
	must.Get(c.Do(t.Context(), "nothing", messages.Task{ID: "d1"}, nil))(t)
	eventually(t, "a dead letter", func() bool { return len(r.with("200 /hook/", `"run":"d1"`, "task.rejected", "/t/default/fleet")) == 1 })
	_ = c.Close()
	must.Do(t, n.Close())
	before := len(r.with())

	n, c = toldNode(t, store, r, io.Discard, false)
	for p := range n.link.conn.Streams.Partitions() {
		must.Do(t, n.link.conn.Logs.SaveCheckpoint(t.Context(), eventlog.CheckpointSubject(followNotify, n.link.conn.Streams.Generation(), p), map[string]int{"seq": 1}))
	}
	_ = c.Close()
	must.Do(t, n.Close())
	n, c = toldNode(t, store, r, io.Discard, true)
	must.Get(c.Do(t.Context(), "fails", messages.Task{ID: "f3"}, nil))(t)
	eventually(t, "told", func() bool { return len(r.with(`"run":"f3"`)) == 1 })
	// Everything from "before" on was submitted again: only that failure is new.
	eventually(t, "notifications end", func() bool {
		s := notifications(t, c)
		return s[run.Succeeded] == 6 && s[run.Failed] == 1 && len(s) == 2
	})
	if all := r.with(); len(all) != before+2 || len(r.with(`"run":"before"`)) != 1 {
		t.Errorf("%d messages, then %q", before, all)
	}
	_ = n
}

// TestStuckNotification: a run that is stuck in the same place twice has one notification.
func TestStuckNotification(t *testing.T) {
	t.Parallel()
	r := startReceiver(t)
	n, c := toldNode(t, t.TempDir(), r, io.Discard, true)
	must.Get(c.Submit(t.Context(), "asks", messages.Task{ID: "q1", Session: "held"}))(t)
	eventually(t, "it waits", func() bool { one, err := c.Runs.Get(t.Context(), "q1"); return err == nil && one.State == run.Waiting })
	must.Do(t, c.Runs.Quarantine(t.Context(), "q1", messages.Control{Reason: "odd"}))
	must.Get(c.Submit(t.Context(), "quiet", messages.Task{ID: "s1", Session: "held"}))(t)
	eventually(t, "it is queued", func() bool { one, err := c.Runs.Get(t.Context(), "s1"); return err == nil && one.State == run.Queued })
	before := map[string]bool{}
	for i := range 3 {
		now := map[string]bool{}
		eventually(t, "seen", func() bool {
			must.Do(t, n.notifier.stuckOf(t.Context(), session.DefaultTenant, before, now))
			return len(now) == 1
		})
		if before = now; i == 0 {
			must.Get(c.Do(t.Context(), "fails", messages.Task{ID: "f1"}, nil))(t)
			eventually(t, "told", func() bool { return len(r.with(`"run":"f1"`)) == 1 })
			if len(r.with("run.stuck")) > 0 {
				t.Error("told at first sight")
			}
		}
	}
	eventually(t, "told", func() bool { return len(r.with("/hook/", "run.stuck", `"run":"s1"`, "/t/default/runs/s1")) == 1 })
	eventually(t, "notifications end", func() bool { return notifications(t, c)[run.Succeeded] >= 3 })
	if got := r.with("run.stuck"); len(got) != 1 {
		t.Errorf("told %d times: %q", len(got), got)
	}
}
