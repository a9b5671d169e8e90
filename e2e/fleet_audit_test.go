//go:build e2e && linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/fleet"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm/scripted"
)

// audit dumps the streams and compares their contents with the records of tools, the model
// server and the clients. Lineage lags behind commits, so the dump is repeated while some
// of it is missing.
func (w *world) audit(ctx context.Context) {
	w.t.Helper()
	began := time.Now()
	for {
		report, err := w.auditOnce(ctx)
		if err != nil {
			w.fail("audit: %v", err)
			return
		}
		if !report.OK() && time.Since(began) < relayed {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		for _, v := range report.Violations {
			w.fail("audit: %v", v)
		}
		w.t.Logf("audit: %d messages, %d commits, %d sessions, %d runs, %d violations, after %v",
			report.Messages, report.Commits, report.Sessions, report.Runs, len(report.Violations), time.Since(began).Round(time.Millisecond))
		return
	}
}

// relayed bounds the lag of lineage behind the last commit.
const relayed = 15 * time.Second

func (w *world) auditOnce(ctx context.Context) (*audit.Report, error) {
	dump, err := os.Create(w.path("dump.jsonl"))
	if err != nil {
		return nil, err
	}
	defer dump.Close()
	user, password := w.f.OperatorLogin()
	c, err := api.Connect(ctx, &streams.Options{Options: conn.Options{URL: w.f.URLs(0), User: user, Password: password}, Client: true})
	if err != nil {
		return nil, err
	}
	defer c.Conn.Close()
	out := audit.NewWriter(dump)
	if err := c.Logs.Dump(ctx, func(m eventlog.Stored) error { return out.Write(audit.Message(m)) }); err != nil {
		return nil, err
	}
	if err := out.Flush(); err != nil {
		return nil, err
	}
	if _, err := dump.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	schemas, err := audit.ReadSchemas(os.DirFS("../messages/schema"))
	if err != nil {
		return nil, err
	}
	o := &audit.Options{Schemas: schemas, Edition: journal.Edition, Limit: 5}
	for _, secret := range w.secrets() {
		o.Secrets = append(o.Secrets, secret)
	}
	for name, to := range map[string]*[]io.Reader{"witness.jsonl": &o.Tools, "told.jsonl": &o.Clients} {
		data, err := os.ReadFile(w.path(name))
		if err != nil {
			return nil, err
		}
		*to = append(*to, bytes.NewReader(data))
	}
	requests, err := w.requests()
	if err != nil {
		return nil, err
	}
	o.Models = []io.Reader{requests}
	return audit.Run(ctx, audit.ReadDump(dump), o)
}

// secrets returns the credentials of the world, by name.
func (w *world) secrets() map[string]string {
	all := w.f.Secrets()
	all["key of the model"] = w.model.key
	return all
}

// kept searches for credentials in the logs of all processes, the clients' messages and the
// model's requests, and for missing permissions. The audit covers the streams.
func (w *world) kept() {
	w.t.Helper()
	for _, p := range append(w.f.Nodes(), w.f.Routers()...) {
		data, err := os.ReadFile(p.Log)
		if err != nil {
			w.fatal(err)
		}
		if _, told, is := bytes.Cut(data, []byte("NATS rejected the credentials")); is {
			w.fail("%s lacks a right: %.200s", p.Name, told)
		}
	}
	files := []string{w.path("told.jsonl"), w.path("history.jsonl"), w.path("model.jsonl"), w.path("witness.jsonl")}
	for _, p := range w.f.All() {
		files = append(files, p.Log)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			w.fatal(err)
		}
		for what, secret := range w.secrets() {
			if bytes.Contains(data, []byte(secret)) {
				w.fail("%s tells the %s", file, what)
			}
		}
	}
	if served, keyed := w.model.served.Load(), w.model.keyed.Load(); keyed == 0 || keyed < served {
		w.fail("%d of %d requests to the model brought its key", keyed, served)
	}
	w.t.Logf("%d credentials are in none of %d files; %d answers of the model said its key", len(w.secrets()), len(files), w.model.echoed.Load())
}

// operatorOf is a connection with the rights of an operator, up to the end of
// the test.
func operatorOf(tb testing.TB, f *fleet.Fleet) (*nats.Conn, jetstream.JetStream) {
	tb.Helper()
	user, password := f.OperatorLogin()
	nc := must.Get(nats.Connect(f.URLs(0), nats.UserInfo(user, password)))(tb)
	tb.Cleanup(nc.Close)
	js := must.Get(jetstream.New(nc))(tb)
	return nc, js
}

// stream returns a stream. It retries while the servers elect the stream's leader.
func stream(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Stream, error) {
	for {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		s, err := js.Stream(try, name)
		cancel()
		if err == nil {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("stream %s: %w", name, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// asks reads the model's log.
func (w *world) asks() (all []scripted.Entry, err error) {
	data, err := os.ReadFile(w.path("model.jsonl"))
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(data) {
		var e scripted.Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// requests is the model's log in the form that the audit reads.
func (w *world) requests() (io.Reader, error) {
	entries, err := w.asks()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, e := range entries {
		run, rest, ok := strings.Cut(e.Step, "/")
		i := strings.LastIndexByte(rest, '/')
		if !ok || i < 0 {
			return nil, fmt.Errorf("a model request without a step: %+v", e)
		}
		// "1.2" is the second answer that attempt 1 asked for, because the first
		// one was no good.
		number, again, _ := strings.Cut(rest[i+1:], ".")
		attempt, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return nil, err
		}
		try := max(e.Try, 1)
		if n, err := strconv.Atoi(again); err == nil {
			try += n * 1000
		}
		text, err := json.Marshal(audit.Request{Run: run, Step: rest[:i], Attempt: attempt, Try: uint64(try), Time: e.Time})
		if err != nil {
			return nil, err
		}
		out.Write(append(text, '\n'))
	}
	return &out, nil
}

// left describes the first message of a queue: its contents, the consumers' counts, and the
// processes' log lines of its session.
func (w *world) left(ctx context.Context, s jetstream.Stream) string {
	var b strings.Builder
	m, err := s.GetMsg(ctx, s.CachedInfo().State.FirstSeq)
	if err != nil {
		return err.Error()
	}
	fmt.Fprintf(&b, "of %s, %s %.1000s", m.Time.Format(time.RFC3339Nano), m.Subject, m.Data)
	consumers := s.ListConsumers(ctx)
	for c := range consumers.Info() {
		fmt.Fprintf(&b, "\n%s of %s: %d pending, %d delivered and not acknowledged, %d again, %d ask; %d deliveries up to %d, the last one or word about one at %v; acknowledged up to %d",
			c.Name, c.Created.Format(time.RFC3339), c.NumPending, c.NumAckPending, c.NumRedelivered, c.NumWaiting,
			c.Delivered.Consumer, c.Delivered.Stream, c.Delivered.Last, c.AckFloor.Stream)
	}
	if err := consumers.Err(); err != nil {
		fmt.Fprintf(&b, "\nconsumers: %v", err)
	}
	words := strings.Split(m.Subject, ".")
	for _, p := range w.f.All() {
		data, err := os.ReadFile(p.Log)
		if err != nil {
			fmt.Fprintf(&b, "\n%s: %v", p.Name, err)
		}
		var told []string
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, words[len(words)-1]) {
				told = append(told, line)
			}
		}
		for _, line := range told[max(len(told)-5, 0):] {
			fmt.Fprintf(&b, "\n%s: %.400s", p.Name, strings.TrimSpace(line))
		}
	}
	return b.String()
}

// empty waits until the queues are empty: no message is redelivered forever.
func (w *world) empty(ctx context.Context) {
	w.t.Helper()
	_, js := operatorOf(w.t, w.f)
	began, told := time.Now(), false
	for _, name := range []string{"TASKS"} {
		for {
			s, err := stream(ctx, js, name)
			if err != nil {
				w.fatal(err)
			}
			n := s.CachedInfo().State.Msgs
			if n == 0 {
				break
			}
			if waited := time.Since(began); waited > 15*time.Second && !told {
				told = true
				w.t.Logf("%d messages are in stream %s %v after the last run has ended", n, name, waited.Round(time.Second))
			}
			select {
			case <-ctx.Done():
				looking, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
				defer cancel()
				w.fail("%d messages are left in stream %s; the first one is %s", n, name, w.left(looking, s))
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}
