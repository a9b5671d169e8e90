package access_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/internal/web/problem"
	"github.com/rathcluster/rath/session"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// world is a server with its streams, and gateways over it.
type world struct {
	srv      *natsserver.Server
	operator *access.Store
	wire     natstest.Wire // between gateways and the server
	last     *access.Gateway
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{srv: natstest.Start(t, nil)}
	node := streamstest.Layer[*streams.Streams](func(s *streams.Streams) *streams.Streams { return s }).Dial(t, streamstest.NodeOptions(w.srv))
	must.Do(t, node.Provision(t.Context()))
	user, password := w.srv.Operator()
	w.operator = w.store(t, user, password)
	t.Cleanup(func() { w.wire.Set(nil, nil) })
	return w
}

// store opens the tokens as a NATS user.
func (w *world) store(t *testing.T, user, password string) *access.Store {
	t.Helper()
	o := &streams.Options{Client: true, Options: conn.Options{Dialer: w.wire.Through(w.srv.Dial), Name: user, User: user, Password: password, Inbox: conn.NodeInbox}}
	s := must.Get(streams.OpenStore(t.Context(), o))(t)
	t.Cleanup(func() { must.Report(t, s.Conn.Close()) })
	return access.NewStore(s)
}

// token makes a token.
func (w *world) token(t *testing.T, e access.Entry) (text, id string) {
	t.Helper()
	if e.Tenant == "" {
		e.Tenant = session.DefaultTenant
	}
	if e.User == "" {
		e.User = "ana"
	}
	if e.Role == "" {
		e.Role = permission.RoleClient
	}
	return must.Get(w.operator.CreateToken(t.Context(), &e))(t), e.ID
}

// door is a gateway that serves.
type door struct {
	*access.Gateway
	url string
}

// gateway starts a gateway on a socket, see handler.
func (w *world) gateway(t *testing.T, change func(o *access.Options)) *door {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	d := &door{url: "http://" + server.Listener.Addr().String()}
	var stop func()
	server.Config.Handler, stop = w.handler(t, d.url, func(o *access.Options) {
		if change != nil {
			change(o)
		}
	})
	d.Gateway = w.last
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(stop)
	return d
}

// handler runs a gateway. Its API and pages answer with the caller, and /api/v1/stream and
// /events/ answer until access ends.
func (w *world) handler(t *testing.T, at string, change func(o *access.Options)) (h http.Handler, stop func()) {
	t.Helper()
	user, password := w.srv.Router()
	o := &access.Options{
		Store: w.store(t, user, password), URL: must.Get(access.ParseURL(at, false))(t), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Connect: func(ctx context.Context, tenant session.Tenant) (*client.Client, error) {
			user, password := w.srv.Gateway()
			return client.Connect(ctx, "", &client.Options{Dialer: w.srv.Dial, Tenant: tenant, User: user, Password: password})
		},
	}
	if change != nil {
		change(o)
	}
	w.last = access.New(o)
	answer := http.NewServeMux()
	answer.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		c := access.From(r.Context())
		_, _ = io.WriteString(rw, strings.Join([]string{string(c.Tenant), c.User, string(c.Role), c.Door, access.FormToken(r.Context())}, " "))
	})
	stream := func(rw http.ResponseWriter, r *http.Request) {
		must.Report(t, http.NewResponseController(rw).Flush())
		select {
		case <-access.From(r.Context()).Ended():
			_, _ = io.WriteString(rw, "ended")
		case <-r.Context().Done():
		}
	}
	answer.HandleFunc("GET /api/v1/stream", stream)
	answer.HandleFunc("GET /events/", stream)
	g := w.last
	door := access.Door{Prefix: "/other/v1/", Handler: answer, Errors: func(rw http.ResponseWriter, _ *http.Request, d *problem.Document) {
		rw.WriteHeader(d.Status)
		_, _ = io.WriteString(rw, "other "+string(d.Code))
	}}
	return g.Handler(&access.Parts{API: answer, Pages: answer, Events: answer, Doors: []access.Door{door}}), natstest.Background(t, func(ctx context.Context) error {
		if err := g.Run(ctx); ctx.Err() == nil {
			return err
		}
		return nil
	})
}

// reply is an answer.
type reply struct {
	status int
	body   string
	header http.Header
}

// send sends a request without following redirects. head are pairs of headers; Host is
// among them.
func send(t *testing.T, c *http.Client, method, at, body string, head ...string) reply {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), method, at, strings.NewReader(body)))(t)
	for i := 0; i < len(head); i += 2 {
		if head[i] == "Host" {
			r.Host = head[i+1]
			continue
		}
		r.Header.Add(head[i], head[i+1])
	}
	if body != "" && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res := must.Get(c.Do(r))(t)
	defer res.Body.Close()
	return reply{res.StatusCode, string(must.Get(io.ReadAll(res.Body))(t)), res.Header}
}

// browser returns a client that keeps cookies and follows no redirect.
func browser(t *testing.T) *http.Client {
	t.Helper()
	return &http.Client{
		Jar: must.Get(cookiejar.New(nil))(t), Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// bearer are the headers of a token.
func bearer(token string) []string { return []string{"Authorization", "Bearer " + token} }

// from are the headers of a form of the gateway's own pages.
func from(at string) []string { return []string{"Origin", at, "Sec-Fetch-Site", "same-origin"} }

// login logs a browser in.
func (d *door) login(t *testing.T, c *http.Client, secret, next string) reply {
	t.Helper()
	return send(t, c, http.MethodPost, d.url+"/login", url.Values{"secret": {secret}, "next": {next}}.Encode(), from(d.url)...)
}

var formToken = regexp.MustCompile(`[0-9a-f]{64}`)
