package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/json"
	"errors"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/web/problem"
	"github.com/rathcluster/rath/run"
)

const (
	// codeFor is how long a login code is good, and maxCodes the number of good ones.
	codeFor  = 10 * time.Minute
	maxCodes = 32
	// loginEach and loginBurst bound the logins from one address in a second, and at once.
	loginEach, loginBurst = 1, 20
	// loginAll bounds those from all addresses.
	loginAll = 200
)

// codes are login codes: each is spent by one login. They are in memory only.
type codes struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]time.Time // by their hash: until when
}

// make draws a code of 130 bits. The oldest ends if there are too many.
func (c *codes) make() string {
	code := strings.ToLower(rand.Text())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[[sha256.Size]byte]time.Time{}
	}
	now := time.Now()
	var oldest [sha256.Size]byte
	for h, until := range c.all {
		if now.After(until) {
			delete(c.all, h)
		} else if first, ok := c.all[oldest]; !ok || until.Before(first) {
			oldest = h
		}
	}
	if len(c.all) >= maxCodes {
		delete(c.all, oldest)
	}
	c.all[sha256.Sum256([]byte(code))] = now.Add(codeFor)
	return code
}

// spend reports whether a code is good, and ends it.
func (c *codes) spend(code string) bool {
	h := sha256.Sum256([]byte(strings.ToLower(code)))
	c.mu.Lock()
	defer c.mu.Unlock()
	until, ok := c.all[h]
	delete(c.all, h)
	return ok && time.Now().Before(until)
}

// NewCode draws a code for one login as Options.Person within ten minutes; "" without a
// person.
func (g *Gateway) NewCode() string {
	if g.codes == nil {
		return ""
	}
	return g.codes.make()
}

var (
	//go:embed login.tmpl
	loginText string
	//go:embed login.js
	loginScript string
	//go:embed login.css
	loginSheet string

	loginPage = template.Must(template.New("login").Parse(loginText))
)

// loginPolicy is the content security policy of the pages of this package.
const loginPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

func (g *Gateway) loginRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, r *http.Request) { g.showLogin(w, http.StatusOK, r.FormValue("next"), "") })
	mux.HandleFunc("POST /login", g.login)
	mux.HandleFunc("POST /logout", g.logout)
	mux.HandleFunc("GET /login/script.js", text("text/javascript; charset=utf-8", loginScript))
	mux.HandleFunc("GET /login/sheet.css", text("text/css; charset=utf-8", loginSheet))
	if g.codes != nil && g.o.Opener != "" {
		mux.HandleFunc("POST /login/code", g.openCode)
	}
	if g.o.OIDC != nil {
		mux.HandleFunc("GET /login/oidc", g.beginOIDC)
		mux.HandleFunc("GET /login/callback", g.endOIDC)
	}
}

func text(format, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", format)
		_, _ = w.Write([]byte(body)) // the browser asks again
	}
}

// showLogin answers with the page to log in at.
func (g *Gateway) showLogin(w http.ResponseWriter, status int, next, problem string) {
	next, _ = localPath(next)
	provider := ""
	if g.o.OIDC != nil {
		provider = g.o.OIDC.Name()
	}
	g.show(w, status, struct {
		Next, Problem, Provider string
		Codes, Login            bool
	}{next, problem, provider, g.codes != nil, true})
}

func (g *Gateway) show(w http.ResponseWriter, status int, data any) {
	var b strings.Builder
	if err := loginPage.Execute(&b, data); err != nil {
		g.log.Error("the page of the login failed", "err", err)
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", loginPolicy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(b.String())) // a browser that left
}

// login begins a page session with a login code or with a token.
func (g *Gateway) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
	if err := g.sameSite(r); err != nil {
		g.refuse(w, r, problem.CodeCrossSite, err)
		return
	}
	if !g.mayTry(r) {
		w.Header().Set("Retry-After", "5")
		g.showLogin(w, http.StatusTooManyRequests, r.PostFormValue("next"), "There were too many attempts. Wait a few seconds and try again.")
		return
	}
	given := strings.TrimSpace(r.PostFormValue("secret"))
	e := &Entry{kind: kindSession, Expires: time.Now().Add(pageFor).UnixMilli()}
	switch own, isToken := parseSecret(given); {
	case isToken:
		t, err := g.entry(r.Context(), kindToken, own)
		if err != nil {
			g.showLogin(w, http.StatusServiceUnavailable, r.PostFormValue("next"), err.Error())
			return
		}
		if t == nil || t.Only != nil {
			g.showLogin(w, http.StatusForbidden, r.PostFormValue("next"), "This token is wrong, expired or revoked, or it is for some workflows only and does not open pages.")
			return
		}
		e.Tenant, e.User, e.Role, e.Token = t.Tenant, t.User, t.Role, t.ID
		if t.Expires != 0 {
			e.Expires = min(e.Expires, t.Expires)
		}
	case g.codes != nil && g.codes.spend(given):
		p := g.o.Person
		e.Tenant, e.User, e.Role, e.Says, e.Issuer = p.Tenant, p.User, p.Role, p.Says, p.Issuer
	default:
		g.showLogin(w, http.StatusForbidden, r.PostFormValue("next"), "This is no good code or token. A code is good for ten minutes and for one login; `rath open` makes a new one.")
		return
	}
	g.begin(w, r, e, r.PostFormValue("next"))
}

// mayTry limits the attempts to log in.
func (g *Gateway) mayTry(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return g.rates.takeOf("login "+host, loginEach, loginBurst) == 0 && g.rates.takeOf("login", loginAll, loginAll) == 0
}

// begin stores a page session and leads to its first page.
func (g *Gateway) begin(w http.ResponseWriter, r *http.Request, e *Entry, next string) {
	own := newSecret()
	e.kind, e.ID, e.Hash = kindSession, own.id, own.hash()
	if err := g.o.Store.put(r.Context(), e); err != nil {
		g.log.Warn("a page session was not stored", "tenant", e.Tenant, "user", e.User, "err", err)
		g.showLogin(w, http.StatusServiceUnavailable, next, "The session could not be stored: the fleet does not answer or is full. Try again in a moment.")
		return
	}
	http.SetCookie(w, g.cookie(g.cookieName(), "/", own.String(), time.Until(time.UnixMilli(e.Expires))))
	path, ok := localPath(next)
	if !ok {
		path = "/t/" + string(e.Tenant) + "/"
	}
	http.Redirect(w, r, path, http.StatusSeeOther)
}

// logout ends the page session.
func (g *Gateway) logout(w http.ResponseWriter, r *http.Request) {
	own, e, err := g.session(r)
	if err == nil && e != nil {
		if err := g.written(w, r, formToken(own)); err != nil {
			g.refuse(w, r, problem.CodeCrossSite, err)
			return
		}
		if err = g.o.Store.remove(r.Context(), kindSession, e.ID); err == nil {
			g.view.refresh(r.Context())
		}
	}
	if err != nil {
		g.refuse(w, r, run.CodeUnavailable, errors.New("the session was not ended: the fleet does not answer; try again"))
		return
	}
	http.SetCookie(w, g.cookie(g.cookieName(), "/", "", -time.Second))
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// session returns the page session of a request, nil if it has none.
func (g *Gateway) session(r *http.Request) (secret, *live, error) {
	c, err := r.Cookie(g.cookieName())
	if err != nil {
		return secret{}, nil, nil
	}
	own, ok := parseSecret(c.Value)
	if !ok {
		return own, nil, nil
	}
	e, err := g.entry(r.Context(), kindSession, own)
	return own, e, err
}

// cookieName is the name of the cookie of page sessions. Cookies of one host are shared by
// its ports, so that the port is in the name on one machine.
func (g *Gateway) cookieName() string {
	if g.o.URL.Scheme == "https" {
		return "__Host-rath"
	}
	return "rath-" + g.o.URL.Port()
}

func (g *Gateway) cookie(name, path, value string, age time.Duration) *http.Cookie {
	seconds := int(age / time.Second)
	if seconds <= 0 {
		seconds = -1
	}
	return &http.Cookie{
		Name: name, Value: value, Path: path, MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: g.o.URL.Scheme == "https",
	}
}

// openCode answers `rath open`, which has the opener's secret from a file of its user, with
// a new login code.
func (g *Gateway) openCode(w http.ResponseWriter, r *http.Request) {
	given, want := sha256.Sum256([]byte(r.Header.Get("Authorization"))), sha256.Sum256([]byte("Bearer "+g.o.Opener))
	if subtle.ConstantTimeCompare(given[:], want[:]) != 1 {
		g.refuse(w, r, problem.CodeUnauthenticated, errUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"code": g.codes.make()}) // the asking side is gone
}

// localPath returns the part of a URL that leads to a page of this server; ok is false for
// one that leads elsewhere, and for the login itself.
func localPath(next string) (path string, ok bool) {
	if len(next) > 2048 || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") {
		return "", false
	}
	for _, c := range next {
		if c < ' ' || c == '\\' || c == 0x7f {
			return "", false
		}
	}
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || strings.HasPrefix(u.Path, "//") || strings.Contains(u.Path, `\`) {
		return "", false
	}
	if u.Path == "/login" || u.Path == "/logout" || strings.HasPrefix(u.Path, "/login/") {
		return "", false
	}
	return next, true
}

// refuse answers a request that does not reach a handler: to a program with a problem
// document, and to a browser with a page.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, code run.Code, err error) {
	g.refuseFor(w, r, &problem.Error{Code: code, Text: strings.TrimPrefix(err.Error(), "access: ")})
}

func (g *Gateway) refuseFor(w http.ResponseWriter, r *http.Request, e *problem.Error) {
	if problem.Formed(r) || strings.HasPrefix(r.URL.Path, "/api/") || r.URL.Path == "/login/code" {
		problem.Write(w, r, e)
		return
	}
	d := problem.Of(e)
	g.show(w, d.Status, struct {
		Next, Problem, Provider string
		Codes, Login            bool
	}{Problem: strconv.Itoa(d.Status) + ": " + d.Detail + "."})
}
