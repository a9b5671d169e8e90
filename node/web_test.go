package node

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// visit sends a request without following redirects.
func visit(t *testing.T, c *http.Client, method, at, form string) *http.Response {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), method, at, strings.NewReader(form)))(t)
	if method != http.MethodGet {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	res := must.Get(c.Do(r))(t)
	must.Report(t, res.Body.Close())
	return res
}

// TestWeb logs in to the pages of a node as a user of `rath dev` does. The address shows
// nothing to others, and none of the node's endpoints.
func TestWeb(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	n := begin(t, &Options{Store: store, NATS: NATS{Level: "lazy", Port: -1}, HTTP: HTTP{Health: "127.0.0.1:0", Web: "127.0.0.1:0", User: "ana"}}).started(t)
	at, moved := WebURL(n)
	if moved {
		t.Error("a free port counts as one in use")
	}
	c := &http.Client{Jar: must.Get(cookiejar.New(nil))(t), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for path, want := range map[string]int{"/livez": 404, "/metrics": 404, "/waiting": 404, "/": 303, "/login": 200} {
		if got := visit(t, c, http.MethodGet, at+path, ""); got.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, got.StatusCode, want)
		}
	}
	login := must.Get(url.Parse(LoginURL(n)))(t)
	form := url.Values{"secret": {login.Fragment}}.Encode()
	if got := visit(t, c, http.MethodPost, at+"/login", form); got.StatusCode != 303 || got.Header.Get("Location") != "/t/default/" {
		t.Errorf("login: %d %s", got.StatusCode, got.Header.Get("Location"))
	}
	if got := visit(t, c, http.MethodGet, at+"/", ""); got.Header.Get("Location") != "/t/default/" {
		t.Errorf("the first page is %q", got.Header.Get("Location"))
	}
	a := must.Get(supervise.ReadAttachment(store))(t)
	if a.HTTP != at || a.HTTPLocal != at || a.Opener == "" {
		t.Errorf("the attachment has %q, %q", a.HTTP, a.HTTPLocal)
	}
}

// TestWebAddress: a port in use is replaced for `rath dev` and refused for routers, and an
// address that others reach needs its URL.
func TestWebAddress(t *testing.T) {
	t.Parallel()
	taken := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", loopback))(t)
	defer taken.Close()
	n := begin(t, &Options{Store: t.TempDir(), NATS: NATS{Level: "lazy"}, HTTP: HTTP{Web: taken.Addr().String(), User: "ana"}}).started(t)
	if at, moved := WebURL(n); !moved || at == "http://"+taken.Addr().String() || !strings.HasPrefix(at, "http://127.0.0.1:") {
		t.Errorf("%s, %v", at, moved)
	}
	for name, tc := range map[string]struct {
		at   HTTP
		want string
	}{
		"in use":      {HTTP{Web: taken.Addr().String()}, "address already in use"},
		"to others":   {HTTP{Web: "0.0.0.0:0"}, "-http-url"},
		"without TLS": {HTTP{Web: "0.0.0.0:0", URL: "http://rath.example.com"}, "-http-insecure"},
		"no address":  {HTTP{Web: "a:b:c"}, "host:port"},
		"no provider": {HTTP{Web: "127.0.0.1:0", OIDC: "none.yaml"}, "none.yaml"},
	} {
		n, err := Start(t.Context(), &Options{Store: t.TempDir(), NATS: NATS{Level: "lazy"}, HTTP: tc.at})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
		if n != nil {
			must.Report(t, n.Close())
		}
	}
}

// TestVouched acts for a user of the web over the gateway's connection: the record has the
// user, and the gateway that vouches for it. The gateway is refused the operator's name. A
// second body under an id is refused, and a mark that another tenant has used hinders nobody.
func TestVouched(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	n := begin(t, &Options{Store: t.TempDir(), NATS: NATS{Level: "lazy"}, HTTP: HTTP{Web: "127.0.0.1:0"}, Workflows: []flow.Registration{asks()}}).started(t)
	gateway := must.Get(gatewayClient(ctx, n, session.DefaultTenant))(t)
	defer func() { must.Report(t, gateway.Close()) }()
	ana, bob := gateway.As("ana", "web/page/s1"), gateway.As("bob", "web/api/t1")
	must.Get(ana.Submit(ctx, "ask", messages.Task{ID: "one"}))(t)
	for {
		err := bob.Questions.Approve(ctx, "one", messages.Control{By: "Bob"})
		if err == nil {
			break
		}
		if !errors.Is(err, run.ErrState) && !errors.Is(err, run.ErrUnknownRun) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	r := must.Get(ana.Wait(ctx, "one"))(t)
	if info := must.Get(ana.Runs.Get(ctx, "one"))(t); r.Output != "bob says to be Bob via web/api/t1" || info.By != "ana" || info.Says != "via web/page/s1" {
		t.Errorf("%q, submitted by %q, who says %q", r.Output, info.By, info.Says)
	}
	must.Get(bob.Submit(ctx, "ask", messages.Task{ID: "one"}))(t)
	if _, err := bob.Submit(ctx, "ask", messages.Task{ID: "one", Model: "other"}); !errors.Is(err, run.ErrKeyReused) {
		t.Errorf("another body: %v", err)
	}
	squatted := &nats.Msg{Subject: messages.TaskSubject("acme", "eve", "ask"), Header: nats.Header{nats.MsgIdHdr: {"default.two"}}, Data: []byte(`{"id":"x"}`)}
	must.Get(n.link.conn.Streams.Conn.Request(ctx, squatted))(t)
	must.Get(ana.Submit(ctx, "ask", messages.Task{ID: "two"}))(t)
	must.Do(t, ana.Runs.Cancel(ctx, "two", messages.Control{}))
	if r := must.Get(ana.Wait(ctx, "two"))(t); r.State != run.Cancelled {
		t.Errorf("the task with the other's mark %s: %s", r.State, r.Error)
	}
	for _, name := range []string{"operator", "anonymous"} {
		if err := gateway.As(name, "web/api/t1").Runs.Cancel(ctx, "one", messages.Control{}); !errors.Is(err, client.ErrDenied) {
			t.Errorf("a cancel as %s: %v", name, err)
		}
		if _, err := gateway.As(name, "web/api/t1").Submit(ctx, "ask", messages.Task{}); !errors.Is(err, client.ErrDenied) {
			t.Errorf("a task of %s: %v", name, err)
		}
	}
	if _, err := gatewayClient(ctx, n, "acme"); !errors.Is(err, session.ErrTenant) {
		t.Errorf("a gateway of another tenant: %v", err)
	}
}

// TestPrivate: the server of a private node refuses a client without a login, and takes
// one with the login that the store has.
func TestPrivate(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	begin(t, &Options{Store: store, NATS: NATS{Level: "lazy", Port: -1, Private: true}}).started(t)
	a := must.Get(supervise.ReadAttachment(store))(t)
	for name, tc := range map[string]struct {
		login client.Options
		want  error
	}{
		"nobody":        {client.Options{}, client.ErrDenied},
		"another login": {client.Options{User: a.User, Password: a.Password + "x"}, client.ErrDenied},
		"the login":     {client.Options{User: a.User, Password: a.Password, Inbox: conn.NodeInbox}, nil},
	} {
		c, err := client.Connect(t.Context(), a.URL, &tc.login)
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		if err == nil {
			must.Report(t, c.Close())
		}
	}
	if info := must.Get(os.Stat(filepath.Join(store, "node.json")))(t); info.Mode().Perm() != 0o600 {
		t.Errorf("the file with the login has the mode %v", info.Mode())
	}
}
