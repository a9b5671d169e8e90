package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/internal/web/api"
	"github.com/rathcluster/rath/internal/web/openai"
	"github.com/rathcluster/rath/internal/web/pages"
	"github.com/rathcluster/rath/internal/web/problem"
	"github.com/rathcluster/rath/internal/web/stream"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// webStop bounds how long answers in progress may take when the node stops.
const webStop = 2 * time.Second

// web serves pages and the API to browsers and programs.
type web struct {
	url      *url.URL
	moved    bool // to a free port: the wanted one is in use
	gateway  *access.Gateway
	opener   string
	listener net.Listener
	server   *http.Server
	events   *stream.Streams
	own      *streams.Streams // connection for tokens; nil if it is the node's
}

// startWeb listens at HTTP.Web; serve answers there.
func startWeb(ctx context.Context, n *Instance) (*web, error) {
	if b := n.link.bound; b != nil {
		return nil, fmt.Errorf("node: http: this node is bound to tenant %s; a router serves the web", b.Tenant())
	}
	w := &web{opener: rand.Text()}
	provider, err := access.ReadProvider(n.o.HTTP.OIDC, n.o.Env)
	if err != nil {
		return nil, fmt.Errorf("node: identity provider: %w", err)
	}
	if err := w.listen(ctx, &n.o.HTTP); err != nil {
		return nil, err
	}
	parts, err := w.parts(n)
	if err != nil {
		return nil, errors.Join(err, w.listener.Close())
	}
	tokens, err := tokenStreams(ctx, n)
	if err != nil {
		return nil, errors.Join(err, w.listener.Close())
	}
	if tokens != n.link.conn.Streams {
		w.own = tokens
	}
	o := &access.Options{Store: access.NewStore(tokens), Connect: func(ctx context.Context, t session.Tenant) (*client.Client, error) { return gatewayClient(ctx, n, t) }, URL: w.url, Origins: n.o.HTTP.Origins, OIDC: provider, Logger: n.o.Logger}
	if n.o.HTTP.User != "" {
		o.Opener = w.opener
		o.Person = &access.Person{Tenant: session.DefaultTenant, User: n.o.HTTP.User, Role: permission.RoleClient}
	}
	w.gateway = access.New(o)
	n.o.Logger.Info("web", "url", w.url.String())
	w.server = access.NewServer(ctx, w.gateway.Handler(parts), n.o.Logger)
	return w, nil
}

// parts returns the routes and the pages of a node, with their updates.
func (w *web) parts(n *Instance) (*access.Parts, error) {
	w.events = stream.New(n.o.Logger, problem.Write)
	routes, err := api.New(&api.Options{Release: Version(), Logger: n.o.Logger, Streams: w.events})
	if err != nil {
		return nil, err
	}
	shown := pages.New(&pages.Options{
		FormToken: access.FormToken, URL: w.url.String(), Log: n.o.Logger,
		Stream: func(rw http.ResponseWriter, r *http.Request, id run.ID) {
			w.events.Serve(rw, r, stream.Selection{Run: id})
		},
	})
	door := openai.New(&openai.Options{URL: w.url.String(), Logger: n.o.Logger})
	return &access.Parts{
		API: routes, Pages: shown, Events: shown, Static: shown,
		Doors: []access.Door{{Prefix: openai.Prefix, Handler: door, Errors: openai.Errors}},
	}, nil
}

// listen opens the socket and determines the address of browsers.
func (w *web) listen(ctx context.Context, o *HTTP) error {
	at, err := healthAddress(o.Web)
	if err != nil {
		return fmt.Errorf("node: http: %w", err)
	}
	lc := new(net.ListenConfig)
	w.listener, err = lc.Listen(ctx, "tcp", at)
	if host, _, split := net.SplitHostPort(at); errors.Is(err, syscall.EADDRINUSE) && o.User != "" && o.URL == "" && split == nil {
		w.moved = true
		w.listener, err = lc.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return fmt.Errorf("node: http: %w; name another address", err)
	}
	text := o.URL
	if text == "" {
		addr, ok := w.listener.Addr().(*net.TCPAddr)
		if !ok || !addr.IP.IsLoopback() {
			return errors.Join(fmt.Errorf("node: http at %s: others reach it: name the address that browsers use, as -http-url https://rath.example.com", w.listener.Addr()), w.listener.Close())
		}
		text = "http://" + addr.String()
	}
	if w.url, err = access.ParseURL(text, o.Insecure); err != nil {
		return errors.Join(fmt.Errorf("node: http: %w", err), w.listener.Close())
	}
	w.listener = access.Limit(w.listener)
	return nil
}

// tokenStreams returns the streams over a connection that may read tokens.
func tokenStreams(ctx context.Context, n *Instance) (*streams.Streams, error) {
	if n.link.server == nil {
		return n.link.conn.Streams, nil
	}
	user, password := n.link.server.Router()
	return streams.OpenStore(ctx, &streams.Options{Client: true, Options: conn.Options{
		Dialer: n.link.login.Dialer, Name: n.link.login.Name + " web", User: user, Password: password, Inbox: conn.NodeInbox, Alone: true, Logger: n.o.Logger,
	}})
}

// gatewayClient connects the client of a tenant for the users of the web.
func gatewayClient(ctx context.Context, n *Instance, t session.Tenant) (*client.Client, error) {
	o := &client.Options{Tenant: t, Name: n.link.login.Name + " gateway", RootCAs: n.link.login.RootCAs, Dialer: n.link.login.Dialer, Logger: n.o.Logger}
	switch {
	case n.link.server != nil:
		if t != session.DefaultTenant {
			return nil, fmt.Errorf("node: the server of this node has no account of tenant %s: %w", t, session.ErrTenant)
		}
		o.User, o.Password = n.link.server.Gateway()
	case n.o.HTTP.Gateways == "": // a server without users
		o.User, o.Password, o.CredsFile, o.Inbox = n.link.login.User, n.link.login.Password, n.link.login.CredsFile, n.link.login.Inbox
	default:
		if err := gatewayLogin(o, n.o.HTTP.Gateways); err != nil {
			return nil, err
		}
	}
	return client.Connect(ctx, n.link.login.URL, o)
}

// gatewayLogin sets the credentials of a tenant's gateway from a file of the directory:
// TENANT.creds (a JWT and its seed), TENANT.nkey (a seed) or TENANT.login (user:password).
func gatewayLogin(o *client.Options, dir string) error {
	base := filepath.Join(dir, string(o.Tenant))
	if _, err := os.Stat(base + ".creds"); err == nil {
		o.CredsFile = base + ".creds"
		return nil
	}
	if _, err := os.Stat(base + ".nkey"); err == nil {
		o.NKeyFile = base + ".nkey"
		return nil
	}
	text, err := os.ReadFile(base + ".login")
	if err != nil {
		return fmt.Errorf("node: credentials of the gateway for tenant %s: %w; put %s.creds, .nkey or .login there", o.Tenant, err, o.Tenant)
	}
	user, password, ok := strings.Cut(strings.TrimSpace(string(text)), ":")
	if !ok {
		return fmt.Errorf("node: credentials of the gateway for tenant %s: %s.login: want one line, user:password", o.Tenant, base)
	}
	o.User, o.Password = user, password
	return nil
}

// serve answers requests until ctx ends.
func (w *web) serve(ctx context.Context) error {
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = w.gateway.Run(keeping) // it ends with its context alone
	}()
	served := make(chan error, 1)
	go func() { served <- w.server.Serve(w.listener) }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		w.events.Close() // access does not end: browsers connect to another router
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), webStop)
		defer cancel()
		if err = w.server.Shutdown(stopping); err != nil {
			err = w.server.Close()
		}
		<-served
	}
	stop()
	<-gone
	if w.own != nil {
		err = errors.Join(err, w.own.Conn.Close())
	}
	return err
}

// WebURL returns the address of the pages and of the API of a node, "" without HTTP.Web.
// moved reports that another process holds the wanted port.
func WebURL(n *Instance) (at string, moved bool) {
	if n.web == nil {
		return "", false
	}
	return n.web.url.String(), n.web.moved
}

// LoginURL returns an address of a node's pages with a new login code, "" without HTTP.User.
func LoginURL(n *Instance) string {
	if n.web == nil || n.o.HTTP.User == "" {
		return ""
	}
	return n.web.url.String() + "/login#" + n.web.gateway.NewCode()
}
