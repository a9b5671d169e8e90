package natsserver_test

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

type dialer func() (net.Conn, error)

func (d dialer) InProcessConn() (net.Conn, error) { return d() }

func start(t *testing.T, o natsserver.Options) *natsserver.Server {
	t.Helper()
	if o.StoreDir == "" {
		o.StoreDir = t.TempDir()
	}
	if o.MaxStore == 0 {
		o.MaxStore = 1 << 30
	}
	srv := must.Get(natsserver.Start(t.Context(), &o))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		must.Report(t, srv.Shutdown(ctx))
	})
	return srv
}

// connect returns a connection and a channel of the server's rejections.
func connect(t *testing.T, srv *natsserver.Server, user, password string) (*nats.Conn, <-chan error) {
	t.Helper()
	refused := make(chan error, 16)
	opts := []nats.Option{
		nats.InProcessServer(dialer(srv.Dial)),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }),
	}
	if user != "" {
		opts = append(opts, nats.UserInfo(user, password))
	}
	nc := must.Get(nats.Connect("", opts...))(t)
	t.Cleanup(nc.Close)
	return nc, refused
}

func TestStoreInUse(t *testing.T) {
	dir := t.TempDir()
	srv := start(t, natsserver.Options{StoreDir: dir})
	_, err := natsserver.Start(t.Context(), &natsserver.Options{StoreDir: dir, Held: func() error {
		t.Error("the second server is told that it holds the directory")
		return nil
	}})
	e, ok := errors.AsType[*natsserver.InUseError](err)
	if !ok || !errors.Is(err, natsserver.ErrStoreInUse) {
		t.Fatalf("second server on the directory: %v", err)
	}
	if e.Dir != dir || e.PID != os.Getpid() {
		t.Errorf("got %+v, want directory %s and process %d", e, dir, os.Getpid())
	}
	for _, want := range []string{dir, strconv.Itoa(os.Getpid()), "use another directory"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %q", err, want)
		}
	}

	must.Do(t, srv.Shutdown(t.Context()))
	start(t, natsserver.Options{StoreDir: dir})
}

// TestShutdownAfterClients: a server whose clients have left ends at once, even if one of
// them left during a request for messages. A server with a remaining client gives it 50 ms.
func TestShutdownAfterClients(t *testing.T) {
	ending := func(stays bool) time.Duration {
		srv := start(t, natsserver.Options{Lazy: true})
		user, password := srv.Operator()
		nc, _ := connect(t, srv, user, password)
		js := must.Get(jetstream.New(nc))(t)
		s := must.Get(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, MaxBytes: 1 << 20}))(t)
		c := must.Get(s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy}))(t)
		must.Get(c.Fetch(1, jetstream.FetchMaxWait(time.Minute)))(t)
		must.Do(t, nc.Flush())
		if !stays {
			nc.Close()
		}
		began := time.Now()
		must.Do(t, srv.Shutdown(t.Context()))
		return time.Since(began)
	}
	left, stayed := time.Hour, time.Hour
	for range 5 {
		left, stayed = min(left, ending(false)), min(stayed, ending(true))
	}
	t.Logf("the fastest of 5 ended within %v, with a client that stays within %v", left, stayed)
	if stayed-left < 25*time.Millisecond {
		t.Errorf("the fastest of 5 servers whose client had left took %v to end, with a client that stays %v", left, stayed)
	}
}

func TestStoreDirRefused(t *testing.T) {
	file := t.TempDir() + "/file"
	must.Do(t, os.WriteFile(file, nil, 0o600))
	tests := map[string]struct {
		dir  string
		want error
	}{
		"none":      {"", natsserver.ErrNoStoreDir},
		"is a file": {file, nil},
	}
	if runtime.GOOS == "linux" {
		// Read-only for every user, root included.
		tests["read-only"] = struct {
			dir  string
			want error
		}{"/proc/rath-store", nil}
	}
	if os.Getuid() > 0 {
		dir := t.TempDir()
		must.Do(t, os.Chmod(dir, 0o500))
		tests["no permission"] = struct {
			dir  string
			want error
		}{dir, natsserver.ErrStoreReadOnly}
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			srv, err := natsserver.Start(t.Context(), &natsserver.Options{StoreDir: tc.dir})
			if err == nil {
				_ = srv.Shutdown(t.Context())
				t.Fatal("started")
			}
			if tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if tc.dir != "" && !strings.Contains(err.Error(), tc.dir) {
				t.Errorf("error %q does not name the directory", err)
			}
		})
	}
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	dir := t.TempDir()
	_, err = natsserver.Start(t.Context(), &natsserver.Options{StoreDir: dir, Port: port})
	if !errors.Is(err, natsserver.ErrPortInUse) || !strings.Contains(err.Error(), strconv.Itoa(port)) {
		t.Fatalf("got %v, want ErrPortInUse naming port %d", err, port)
	}
	// The failed start gave the directory back.
	start(t, natsserver.Options{StoreDir: dir})
}

// TestHeld: work due before clients can connect is done then, by the server that holds the
// directory.
func TestHeld(t *testing.T) {
	dir, port := t.TempDir(), natstest.FreePort(t)
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	why := errors.New("no")
	_, err := natsserver.Start(t.Context(), &natsserver.Options{StoreDir: dir, Port: port, Held: func() error { return why }})
	if !errors.Is(err, why) {
		t.Errorf("it starts in spite of an error: %v", err)
	}
	held := false
	start(t, natsserver.Options{StoreDir: dir, Port: port, Held: func() error {
		held = true
		if _, err := natsserver.Hold(dir); !errors.Is(err, natsserver.ErrStoreInUse) {
			t.Errorf("the directory is not held: %v", err)
		}
		if c, err := net.Dial("tcp", at); err == nil {
			t.Error("it listens already", c.Close())
		}
		return nil
	}})
	if !held {
		t.Error("Held is not called")
	}
}

func TestListen(t *testing.T) {
	if url := start(t, natsserver.Options{}).URL(); url != "" {
		t.Errorf("a server without a port has URL %q", url)
	}
	srv := start(t, natsserver.Options{Port: -1})
	nc := must.Get(nats.Connect(srv.URL()))(t)
	defer nc.Close()
	if !strings.HasPrefix(srv.URL(), "nats://127.0.0.1:") {
		t.Errorf("URL %q is not on the loopback interface", srv.URL())
	}
}

func TestSync(t *testing.T) {
	for name, want := range map[string]bool{"fsync": true, "lazy": false} {
		t.Run(name, func(t *testing.T) {
			srv := start(t, natsserver.Options{Lazy: !want})
			always, interval, err := srv.Sync()
			if err != nil || always != want || interval <= 0 {
				t.Errorf("Sync() = %v, %v, %v; want %v", always, interval, err, want)
			}
		})
	}
}

// TestClientAccess shows the permissions of a client without credentials, and that it has
// no others.
func TestClientAccess(t *testing.T) {
	srv := start(t, natsserver.Options{})
	user, password := srv.Node()
	node, _ := connect(t, srv, user, password)
	client, refused := connect(t, srv, "", "")

	t.Run("request", func(t *testing.T) {
		for _, subject := range []string{"rath.task.default.anonymous.w", "rath.ctl.default.anonymous.r1.cancel", "rath.query.default.result"} {
			if _, err := client.Request(subject, nil, time.Second); !errors.Is(err, nats.ErrNoResponders) {
				t.Errorf("%s without a responder: %v", subject, err)
			}
			sub := must.Get(node.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte("ok")) }))(t)
			must.Do(t, node.Flush())
			if m, err := client.Request(subject, []byte("?"), 5*time.Second); err != nil || string(m.Data) != "ok" {
				t.Errorf("%s: %v, %v", subject, m, err)
			}
			must.Do(t, sub.Unsubscribe())
		}
	})
	t.Run("watch", func(t *testing.T) {
		for _, subject := range []string{"rath.run.default.r1.delta", "rath.tail.default.s1.fork.s2"} {
			sub := must.Get(client.SubscribeSync(subject))(t)
			must.Do(t, client.Flush())
			must.Do(t, node.Publish(subject, []byte("seen")))
			if m, err := sub.NextMsg(5 * time.Second); err != nil || string(m.Data) != "seen" {
				t.Errorf("%s: %v, %v", subject, m, err)
			}
		}
	})
	t.Run("nothing else", func(t *testing.T) {
		for _, subject := range []string{
			"rath.task.other.anonymous.w", "rath.task.default.ann.w", "rath.task.default.anonymous~ann.w", "rath.task.default.w", "rath.ctl.other.anonymous.r1.cancel", "rath.query.other.result", "rath.ev.1.0.default.s",
			"rath.work.p.x", "rath.node.n.deliver", "$JS.API.INFO", "$SYS.REQ.SERVER.PING", "$KV.ALIAS.x", "rath.run.default.r1.result",
		} {
			must.Do(t, client.Publish(subject, nil))
			expectRefusal(t, client, refused, subject)
		}
		for _, subject := range []string{"rath.>", ">", "rath.run.other.>", "rath.tail.>", "rath.ev.>", "rath.task.default.*.*", "$SYS.>", "$JS.>"} {
			must.Get(client.SubscribeSync(subject))(t)
			expectRefusal(t, client, refused, subject)
		}
	})
}

// TestToolAccess shows that a tool's program takes the calls of its tenant, and
// that a client without credentials can neither take them nor announce a tool.
func TestToolAccess(t *testing.T) {
	srv := start(t, natsserver.Options{})
	user, password := srv.Node()
	node, _ := connect(t, srv, user, password)
	user, password = srv.Tool()
	program, denied := connect(t, srv, user, password)
	client, refused := connect(t, srv, "", "")

	const subject = "rath.tool.default.weather"
	if _, err := node.Request(subject, nil, time.Second); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a call without a responder: %v", err)
	}
	sub := must.Get(program.QueueSubscribe(subject, "rath.tool", func(m *nats.Msg) { _ = m.Respond([]byte("sunny")) }))(t)
	must.Do(t, program.Flush())
	if m, err := node.Request(subject, []byte("?"), 5*time.Second); err != nil || string(m.Data) != "sunny" {
		t.Errorf("a call: %v, %v", m, err)
	}
	must.Do(t, sub.Unsubscribe())
	must.Do(t, program.Flush())
	if _, err := node.Request(subject, nil, time.Second); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a call after the program has left: %v", err)
	}
	const announce = "rath.ctl.default.tool.tool.weather.announce"
	must.Get(node.Subscribe("rath.ctl.>", func(m *nats.Msg) { _ = m.Respond([]byte("ok")) }))(t)
	must.Do(t, node.Flush())
	if m, err := program.Request(announce, nil, 5*time.Second); err != nil || string(m.Data) != "ok" {
		t.Errorf("announce: %v, %v", m, err)
	}
	for _, subject := range []string{announce, "rath.tool.default.weather"} {
		must.Do(t, client.Publish(subject, nil))
		expectRefusal(t, client, refused, subject)
	}
	must.Get(client.SubscribeSync(subject))(t)
	expectRefusal(t, client, refused, subject)
	for _, subject := range []string{"rath.tool.other.weather", "rath.tool.>", "rath.ev.>"} {
		must.Get(program.SubscribeSync(subject))(t)
		expectRefusal(t, program, denied, subject)
	}
	must.Do(t, program.Publish("rath.ev.1.0.default.s", nil))
	expectRefusal(t, program, denied, "rath.ev.1.0.default.s")
}

func expectRefusal(t *testing.T, nc *nats.Conn, refused <-chan error, subject string) {
	t.Helper()
	must.Do(t, nc.Flush())
	select {
	case err := <-refused:
		if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), subject) {
			t.Errorf("%s: %v", subject, err)
		}
	case <-time.After(5 * time.Second):
		t.Errorf("%s was allowed", subject)
	}
}

// TestAnswerStaysWithAsker sends requests whose answers are addressed to a
// subject of the streams' account: neither JetStream nor a node can be made
// to publish there.
func TestAnswerStaysWithAsker(t *testing.T) {
	srv := start(t, natsserver.Options{})
	user, password := srv.Node()
	node, _ := connect(t, srv, user, password)
	js := must.Get(jetstream.New(node))(t)
	for name, subject := range map[string]string{"EV": "rath.ev.>", "TASKS": "rath.task.*.*.*"} {
		must.Get(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}}))(t)
	}
	must.Get(node.Subscribe("rath.ctl.default.>", func(m *nats.Msg) { _ = m.Respond([]byte("answer")) }))(t)
	must.Do(t, node.Flush())
	client, _ := connect(t, srv, "", "")
	for _, subject := range []string{"rath.task.default.anonymous.w", "rath.ctl.default.anonymous.r.cancel"} {
		must.Do(t, client.PublishRequest(subject, "rath.ev.1.0.default.s", []byte("{}")))
		// A second request, answered properly, is behind the first one.
		must.Get(client.Request(subject, []byte("{}"), 5*time.Second))(t)
	}
	tasks := must.Get(js.Stream(t.Context(), "TASKS"))(t)
	if n := tasks.CachedInfo().State.Msgs; n != 2 {
		t.Errorf("%d tasks stored, want 2", n)
	}
	ev := must.Get(js.Stream(t.Context(), "EV"))(t)
	if n := ev.CachedInfo().State.Msgs; n != 0 {
		t.Errorf("%d answers landed in the event stream", n)
	}
}

func TestNodeMayNotDelete(t *testing.T) {
	srv := start(t, natsserver.Options{})
	user, password := srv.Node()
	node, refused := connect(t, srv, user, password)
	js := must.Get(jetstream.New(node))(t)
	ctx := t.Context()
	s := must.Get(js.CreateStream(ctx, jetstream.StreamConfig{Name: "EV", Subjects: []string{"rath.ev.>"}}))(t)
	must.Get(js.Publish(ctx, "rath.ev.1.0.default.s", []byte("x")))(t)
	for what, remove := range map[string]func(context.Context) error{
		"PURGE":  func(ctx context.Context) error { return s.Purge(ctx) },
		"DELETE": func(ctx context.Context) error { return js.DeleteStream(ctx, "EV") },
	} {
		waits, cancel := context.WithCancel(ctx) // it is not answered
		removed := make(chan error, 1)
		go func() { removed <- remove(waits) }()
		expectRefusal(t, node, refused, "$JS.API.STREAM."+what+".EV")
		cancel()
		if err := <-removed; err == nil {
			t.Errorf("%s: the node removed events", what)
		}
	}

	user, password = srv.Operator()
	operator, _ := connect(t, srv, user, password)
	js = must.Get(jetstream.New(operator))(t)
	s = must.Get(js.Stream(ctx, "EV"))(t)
	if err := s.Purge(ctx); err != nil {
		t.Errorf("the operator may not purge: %v", err)
	}
}

func TestPasswordsAreChecked(t *testing.T) {
	srv := start(t, natsserver.Options{Port: -1, OperatorPassword: "correct horse"})
	if _, err := nats.Connect(srv.URL(), nats.UserInfo("operator", "wrong")); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("wrong password: %v", err)
	}
	connect(t, srv, "operator", "correct horse")
	if _, err := natsserver.Start(t.Context(), &natsserver.Options{StoreDir: t.TempDir(), NodePassword: `a"b`}); err == nil {
		t.Error("a password with a quote was accepted")
	}
}

func TestOpen(t *testing.T) {
	srv := start(t, natsserver.Options{Open: true})
	if user, password := srv.Node(); user != "" || password != "" {
		t.Error("an open server has credentials")
	}
	nc, _ := connect(t, srv, "", "")
	js := must.Get(jetstream.New(nc))(t)
	if _, err := js.AccountInfo(t.Context()); err != nil {
		t.Error(err)
	}
}
