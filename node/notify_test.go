package node

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
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
	"github.com/rathcluster/rath/internal/testkit/webtest"
	"github.com/rathcluster/rath/internal/workflows/notify"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	within(t, 2*time.Minute, what, ok)
}

func within(t *testing.T, most time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(most); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, most)
		}
	}
}

var awayFlag = flag.Duration("away", time.Second, "how long the target of TestTargetAway answers nothing")

const canary = "canary-7d1f"

// targetsOf writes a list of targets at r.
func targetsOf(t *testing.T, r *webtest.Receiver) (file string, env func(string) string) {
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
  - {on: [question], workflows: [twice, thrice], to: hook}
  - {on: [failed, budget, stuck, deadletter], to: hook}
  - {tenant: other, on: [question, failed], to: ops}
`, r.Mail()), 0o600))
	at := r.URL()
	values := map[string]string{"OPS": at + "/ops/" + canary, "HOOK": at + "/hook/" + canary, "KEY": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
	return file, func(name string) string { return values[name] }
}

// toldNode starts a node whose list sends to r.
func toldNode(t *testing.T, store string, r *webtest.Receiver, logs io.Writer, targets bool) (*Instance, *client.Client) {
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
			work("thrice", func(ctx context.Context, s session.Session) (session.Session, error) {
				for range 2 {
					if _, err := asks(ctx, s); err != nil {
						return s, err
					}
				}
				return s, errors.New("it is over")
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
	r := webtest.StartReceiver(t)
	store := t.TempDir()
	var logs lockedBuffer
	n, c := toldNode(t, store, r, &logs, true)
	submit := func(workflow, id string) {
		must.Get(c.Submit(t.Context(), workflow, messages.Task{ID: run.ID(id)}))(t)
	}
	submit("quiet", "q0") // no rule names its workflow
	submit("asks", "q1")
	const link = "<https://rath.example.com/t/default/questions/q1/0|Question: run q1 of asks waits for an answer>"
	eventually(t, "told", func() bool { return len(r.With("/ops/", link)) == 1 })
	eventually(t, "told again", func() bool {
		return len(r.With("mail ", "Subject: Still open: run q1 of asks waits for an answer", "https://rath.example.com/t/default/questions/q1/0", "To: ana@example.com")) == 1
	})
	submit("asks", "q2")
	eventually(t, "told", func() bool { return len(r.With("/ops/", "questions/q2/0")) == 1 })
	must.Do(t, c.Questions.Approve(t.Context(), "q2", messages.Control{}))
	eventually(t, "all notifications end", func() bool { s := notifications(t, c); return s[run.Succeeded] == 4 && len(s) == 1 })
	if got := r.With("q2"); len(got) != 1 {
		t.Errorf("an answered question was told %d times: %q", len(got), got)
	}
	if got := r.With("q0"); len(got) > 0 {
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
	if got := r.With("SECRET TITLE"); len(got) > 0 {
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
	r := webtest.StartReceiver(t)
	store := t.TempDir()
	n, c := toldNode(t, store, r, io.Discard, false)
	must.Get(c.Do(t.Context(), "fails", messages.Task{ID: "before"}, nil))(t)
	_ = c.Close()
	must.Do(t, n.Close())

	r.Answer(503)
	n, c = toldNode(t, store, r, io.Discard, true)
	must.Get(c.Submit(t.Context(), "twice", messages.Task{ID: "t1"}))(t)
	eventually(t, "an attempt", func() bool { return len(r.With("503 /hook/", `"run":"t1"`)) == 1 })
	must.Do(t, c.Questions.Approve(t.Context(), "t1", messages.Control{}))
	must.Get(c.Do(t.Context(), "fails", messages.Task{ID: "f1"}, nil))(t)
	eventually(t, "an attempt", func() bool { return len(r.With("503 /hook/", `"run":"f1"`)) == 1 })
	eventually(t, "asked again", func() bool {
		one, err := c.Runs.Get(t.Context(), "t1")
		return err == nil && len(one.Waits) == 1 && one.Waits[0].Step == "1"
	})
	r.Answer(200)
	eventually(t, "both questions", func() bool { return len(r.With("200 /hook/", `"run":"t1"`)) == 2 })
	if all := r.With("200 /hook/", `"run":"t1"`); !strings.Contains(all[0], "questions/t1/0") || !strings.Contains(all[1], "questions/t1/1") || len(r.With("503 /hook/", "questions/t1/1")) > 0 {
		t.Errorf("the questions of a run out of order: %q", r.With(`"run":"t1"`))
	}
	eventually(t, "told", func() bool { return len(r.With("200 /hook/", `"run":"f1"`, "run.failed")) == 1 })
	id := strings.Fields(r.With("200 /hook/", `"run":"f1"`)[0])[2]
	if all := r.With(`"run":"f1"`); len(all) != len(r.With(`"run":"f1"`, id)) || !strings.HasPrefix(id, "notify-") {
		t.Errorf("ids of one notification: %q", all)
	}
	r.Answer(400)
	must.Get(c.Do(t.Context(), "fails", messages.Task{ID: "f2"}, nil))(t)
	eventually(t, "given up", func() bool { return notifications(t, c)[run.Failed] == 1 })
	r.Answer(200)
	must.Get(c.Do(t.Context(), "nothing", messages.Task{ID: "d1"}, nil))(t)
	eventually(t, "a dead letter", func() bool { return len(r.With("200 /hook/", `"run":"d1"`, "task.rejected", "/t/default/fleet")) == 1 })
	_ = c.Close()
	must.Do(t, n.Close())
	before := len(r.With())

	n, c = toldNode(t, store, r, io.Discard, false)
	for p := range n.link.conn.Streams.Partitions() {
		must.Do(t, n.link.conn.Logs.SaveCheckpoint(t.Context(), eventlog.CheckpointSubject(followNotify, n.link.conn.Streams.Generation(), p), map[string]int{"seq": 1}))
	}
	_ = c.Close()
	must.Do(t, n.Close())
	n, c = toldNode(t, store, r, io.Discard, true)
	must.Get(c.Do(t.Context(), "fails", messages.Task{ID: "f3"}, nil))(t)
	eventually(t, "told", func() bool { return len(r.With(`"run":"f3"`)) == 1 })
	// Everything from "before" on was submitted again: only that failure is new.
	eventually(t, "notifications end", func() bool {
		s := notifications(t, c)
		return s[run.Succeeded] == 6 && s[run.Failed] == 1 && len(s) == 2
	})
	if all := r.With(); len(all) != before+2 || len(r.With(`"run":"before"`)) != 1 {
		t.Errorf("%d messages, then %q", before, all)
	}
	_ = n
}

// TestTargetAway: a target takes requests and answers none for a while, in which runs ask
// twice and fail. Then it gets each notification at least once, under one id, and those of a
// run in their order.
func TestTargetAway(t *testing.T) {
	t.Parallel()
	r := webtest.StartReceiver(t)
	_, c := toldNode(t, t.TempDir(), r, io.Discard, true)
	r.Answer(webtest.Silent)
	over := time.After(*awayFlag)
	runs := []run.ID{"a1", "a2", "a3"}
	for _, id := range runs {
		must.Get(c.Submit(t.Context(), "thrice", messages.Task{ID: id}))(t)
		for _, step := range []run.Path{"0", "1"} {
			eventually(t, "a question", func() bool {
				one, err := c.Runs.Get(t.Context(), id)
				return err == nil && len(one.Waits) == 1 && one.Waits[0].Step == step
			})
			must.Do(t, c.Questions.Approve(t.Context(), id, messages.Control{}))
		}
		must.Get(c.Wait(t.Context(), id))(t)
	}
	eventually(t, "an attempt", func() bool { return len(r.With("0 /hook/")) > 0 })
	<-over
	silent := len(r.With("0 /hook/"))
	r.Answer(http.StatusOK)
	within(t, 2*(*awayFlag+time.Minute), "all notifications end", func() bool { s := notifications(t, c); return s[run.Succeeded] == 3*len(runs) && len(s) == 1 })
	for _, id := range runs {
		var ids []string
		told := r.With("200 /hook/", `"run":"`+string(id)+`"`)
		for i, want := range []string{"questions/" + string(id) + "/0", "questions/" + string(id) + "/1", "run.failed"} {
			if len(told) != 3 || !strings.Contains(told[i], want) {
				t.Fatalf("run %s was told as %q", id, told)
			}
			ids = append(ids, strings.Fields(told[i])[2])
		}
		for _, text := range r.With(`"run":"` + string(id) + `"`) {
			if !slices.Contains(ids, strings.Fields(text)[2]) {
				t.Errorf("an attempt with another id than %q: %s", ids, text)
			}
		}
	}
	t.Logf("%d requests without an answer in %v, and %d notifications then", silent, *awayFlag, len(r.With("200 /hook/")))
}

// TestStuckNotification: a run that is stuck in the same place twice has one notification.
func TestStuckNotification(t *testing.T) {
	t.Parallel()
	r := webtest.StartReceiver(t)
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
			eventually(t, "told", func() bool { return len(r.With(`"run":"f1"`)) == 1 })
			if len(r.With("run.stuck")) > 0 {
				t.Error("told at first sight")
			}
		}
	}
	eventually(t, "told", func() bool { return len(r.With("/hook/", "run.stuck", `"run":"s1"`, "/t/default/runs/s1")) == 1 })
	eventually(t, "notifications end", func() bool { return notifications(t, c)[run.Succeeded] >= 3 })
	if got := r.With("run.stuck"); len(got) != 1 {
		t.Errorf("told %d times: %q", len(got), got)
	}
}
