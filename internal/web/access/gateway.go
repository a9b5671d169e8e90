package access

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/web/problem"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// pageFor is how long a page session lasts.
	pageFor = 12 * time.Hour
	// maxForm bounds the body of a page's form.
	maxForm = 2 << 20
	// FormField is the field of a form, and FormHeader the header of a script's request,
	// that has the form token of the page.
	FormField  = "form_token"
	FormHeader = "X-Rath-Form"
)

// Options configure a gateway.
type Options struct {
	// Store has the tokens and the page sessions.
	Store *Store
	// Connect connects the clients of a tenant, with credentials of the role gateway.
	Connect Connect
	// URL is the address under which browsers and programs reach the gateway. It sets the
	// accepted hosts and origins, redirects, links and whether cookies are secure. See
	// ParseURL.
	URL *url.URL
	// Origins are the origins of other sites whose scripts may use the API.
	Origins []string
	// Person is the user of a login code; nil accepts no codes.
	Person *Person
	// Opener is a secret for requests of login codes over HTTP; "" answers none.
	Opener string
	// OIDC is the provider of identities; nil is none.
	OIDC *Provider
	// Logger logs background events; nil discards them.
	Logger *slog.Logger
}

// Person is a user with a role in a tenant.
type Person struct {
	Tenant session.Tenant
	User   string
	Role   permission.Role
	// An identity provider, Issuer, stated the identity in Says.
	Says, Issuer string
}

// Parts are the handlers behind the gateway; nil leaves the paths of a part out. Their
// requests carry a caller, except those for Static.
type Parts struct {
	API    http.Handler // /api/v1/
	Pages  http.Handler // /t/
	Events http.Handler // /events/
	Static http.Handler // /static/
	Doors  []Door
}

// Door is a protocol of other systems, for programs with a token.
type Door struct {
	Prefix  string // of its paths, such as /openai/v1/
	Handler http.Handler
	Errors  problem.Writer
}

// Gateway authenticates requests and limits them. Its methods may be called concurrently.
type Gateway struct {
	o     Options
	log   *slog.Logger
	view  *view
	pool  *pool
	codes *codes
	rates *rates
	cross *http.CrossOriginProtection
}

// New returns a gateway, which serves once Run has begun.
func New(o *Options) *Gateway {
	g := &Gateway{o: *o, log: o.Logger, cross: http.NewCrossOriginProtection(), rates: newRates(), pool: newPool(o.Connect)}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	g.view = newView(o.Store, g.log)
	if o.Person != nil {
		g.codes = &codes{}
	}
	return g
}

// Run keeps the tokens up to date until ctx ends. All access ends with it.
func (g *Gateway) Run(ctx context.Context) error {
	defer g.pool.close()
	g.view.run(ctx)
	return ctx.Err()
}

// Handler returns the handler of all paths.
func (g *Gateway) Handler(p *Parts) http.Handler {
	mux := http.NewServeMux()
	if p.API != nil {
		mux.Handle("/api/v1/", g.api(p.API))
	}
	for i := range p.Doors {
		mux.Handle(p.Doors[i].Prefix, g.api(p.Doors[i].Handler))
	}
	if p.Pages != nil {
		mux.Handle("/t/", g.page(p.Pages))
	}
	if p.Events != nil {
		mux.Handle("/events/", g.page(p.Events))
	}
	if p.Static != nil {
		mux.Handle("GET /static/", p.Static)
	}
	g.loginRoutes(mux)
	mux.HandleFunc("GET /{$}", g.home)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		g.refuse(w, r, run.CodeNotFound, errNothing)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		if i := slices.IndexFunc(p.Doors, func(d Door) bool { return strings.HasPrefix(r.URL.Path, d.Prefix) }); i >= 0 {
			r = problem.With(r, p.Doors[i].Errors)
		}
		if g.o.URL.Scheme == "https" {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		if !g.ours(r.Host) {
			g.refuse(w, r, problem.CodeMisdirected, fmt.Errorf("the host %q is not the one of this gateway, %s", excerpt.Start(r.Host, 80), g.o.URL.Host))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// ours reports whether a Host header names the gateway: then a page of another site that
// resolves its name to this address gets nothing.
func (g *Gateway) ours(host string) bool {
	if strings.EqualFold(host, g.o.URL.Host) {
		return true
	}
	own, port := g.o.URL.Hostname(), g.o.URL.Port()
	if !loopback(own) {
		return false
	}
	name, given, err := net.SplitHostPort(host)
	return err == nil && given == port && loopback(name)
}

// loopback reports whether a host is this machine by a name that no other site can have.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// errNothing is the answer for all that does not exist or belongs to another tenant.
var errNothing = errors.New("there is nothing here")

// errUnauthorized is the answer to all wrong, expired and revoked tokens: the difference
// would help someone who guesses.
var errUnauthorized = errors.New("the token is missing, wrong, expired or revoked; the operator makes one with `rath token create`")

// api authenticates the requests of programs, by a bearer token.
func (g *Gateway) api(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.shared(w, r) {
			return
		}
		own, ok := bearer(r)
		if !ok {
			own = secret{id: "none"}
		}
		e, err := g.entry(r.Context(), kindToken, own)
		switch {
		case err != nil:
			g.refuse(w, r, run.CodeUnavailable, err)
			return
		case e == nil:
			g.refuse(w, r, problem.CodeUnauthenticated, errUnauthorized)
			return
		}
		g.serve(w, r, next, e, DoorAPI, "")
	})
}

// shared answers the questions of browsers whether a script of another site may use the
// API, and reports whether that was the request.
func (g *Gateway) shared(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || !slices.Contains(g.o.Origins, origin) {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	if r.Method != http.MethodOptions {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, PUT, POST, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Last-Event-ID")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// bearer returns the token of a request.
func bearer(r *http.Request) (secret, bool) {
	all := r.Header.Values("Authorization")
	if len(all) != 1 {
		return secret{}, false
	}
	scheme, text, _ := strings.Cut(all[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return secret{}, false
	}
	return parseSecret(strings.TrimSpace(text))
}

// entry returns the entry of a secret, nil for a wrong one.
func (g *Gateway) entry(ctx context.Context, kind string, own secret) (*live, error) {
	e, err := g.view.find(ctx, kind, own.id)
	if err != nil {
		return nil, err
	}
	hash := strings.Repeat("0", 2*sha256.Size)
	if e != nil {
		hash = e.Hash
	}
	if !own.is(hash) || e == nil {
		return nil, nil
	}
	return e, nil
}

// page authenticates the requests of browsers, by a cookie.
func (g *Gateway) page(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own, e, err := g.session(r)
		switch {
		case err != nil:
			g.refuse(w, r, run.CodeUnavailable, err)
			return
		case e == nil && r.Header.Get("Accept") == "text/event-stream":
			w.WriteHeader(http.StatusNoContent) // an EventSource connects again after any other answer
			return
		case e == nil && r.Method == http.MethodGet:
			http.Redirect(w, r, "/login?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
			return
		case e == nil:
			g.refuse(w, r, problem.CodeUnauthenticated, errors.New("log in again, at /login; nothing was changed"))
			return
		}
		form := formToken(own)
		if !safe(r.Method) {
			if err := g.written(w, r, form); err != nil {
				g.refuse(w, r, problem.CodeCrossSite, err)
				return
			}
		}
		g.serve(w, r, next, e, DoorPage, form)
	})
}

func safe(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// written refuses a write that does not come from a page of this gateway.
func (g *Gateway) written(w http.ResponseWriter, r *http.Request, form string) error {
	if err := g.sameSite(r); err != nil {
		return err
	}
	given := r.Header.Get(FormHeader)
	if given == "" {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		given = r.PostFormValue(FormField)
	}
	if !hmac.Equal([]byte(given), []byte(form)) {
		return errors.New("the form is not of this session; open the page again and repeat it")
	}
	return nil
}

// sameSite refuses a write that a page of another site sent, or a program: those use the
// API.
func (g *Gateway) sameSite(r *http.Request) error {
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	if origin == "" && site == "" {
		return errors.New("the request has neither Origin nor Sec-Fetch-Site: pages are for browsers; programs use /api/v1 with a token")
	}
	if err := g.cross.Check(r); err != nil {
		return errors.New("the request comes from another site")
	}
	if origin != "" && origin != "null" {
		if u, err := url.Parse(origin); err != nil || u.Scheme != g.o.URL.Scheme || !g.ours(u.Host) {
			return errors.New("the request comes from another origin")
		}
	} else if origin == "null" && site != "same-origin" {
		return errors.New("the request comes from a page without an origin")
	}
	return nil
}

// formToken is the token of the forms of a page session. It follows from the secret of the
// cookie, so that every router expects the same one.
func formToken(own secret) string {
	h := hmac.New(sha256.New, []byte(own.text))
	h.Write([]byte("form " + own.id))
	return hex.EncodeToString(h.Sum(nil))
}

// FormToken is the value of FormField and of FormHeader for the caller of a page; "" for
// another caller.
func FormToken(ctx context.Context) string { return From(ctx).form }

// serve passes a request on with its caller.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, next http.Handler, e *live, door, form string) {
	if wait := g.rates.take(e.kind + "." + e.ID); wait > 0 {
		g.refuseFor(w, r, &problem.Error{Code: problem.CodeRateLimited, Text: fmt.Sprintf("more than %d requests a second with one token", rateEach), RetryAfter: int(wait/time.Second) + 1})
		return
	}
	c, release, err := g.pool.client(r.Context(), e.Tenant)
	if err != nil {
		g.log.Warn("no client for a tenant", "tenant", e.Tenant, "err", err)
		g.refuse(w, r, run.CodeUnavailable, fmt.Errorf("the gateway cannot reach the fleet for tenant %s", e.Tenant))
		return
	}
	defer release()
	caller := &Caller{
		Tenant: e.Tenant, User: e.User, Role: e.Role, Door: door, Token: e.ID, Only: e.Only, Says: e.Says,
		Client: c.As(e.User, via(door, e.ID)), ended: e.ended, form: form,
	}
	if e.Expires != 0 {
		caller.Expires = time.UnixMilli(e.Expires)
	}
	next.ServeHTTP(w, r.WithContext(With(r.Context(), caller)))
}

// via is the text that events keep beside the user: the gateway, the door and the token.
func via(door, id string) string { return "web/" + door + "/" + id }

// home leads to the pages of the user's tenant, or to the login.
func (g *Gateway) home(w http.ResponseWriter, r *http.Request) {
	_, e, err := g.session(r)
	switch {
	case err != nil:
		g.refuse(w, r, run.CodeUnavailable, err)
	case e == nil:
		http.Redirect(w, r, "/login", http.StatusSeeOther)
	default:
		http.Redirect(w, r, "/t/"+string(e.Tenant)+"/", http.StatusSeeOther)
	}
}

// ParseURL reads the address under which browsers reach a gateway. An address off this
// machine is https, because cookies and tokens travel there, unless insecure.
func ParseURL(text string, insecure bool) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("address %q: want one as https://rath.example.com, without a path", text)
	}
	if u.Scheme == "http" && !insecure && !loopback(u.Hostname()) {
		return nil, fmt.Errorf("address %q: it is off this machine and not https, so that others can read tokens and cookies on the way: name an https address, or accept that with -http-insecure", text)
	}
	u.Path = ""
	if p := u.Port(); u.Scheme == "https" && p == "443" || u.Scheme == "http" && p == "80" {
		u.Host = strings.TrimSuffix(u.Host, ":"+p)
	}
	return u, nil
}
