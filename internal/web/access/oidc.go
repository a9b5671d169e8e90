package access

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"go.yaml.in/yaml/v3"
	"golang.org/x/oauth2"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// oidcWithin bounds each request to the provider, and oidcFor the time that a user may
	// take there.
	oidcWithin = 10 * time.Second
	oidcFor    = 10 * time.Minute
	// maxProvider bounds the bytes of an answer of the provider.
	maxProvider = 1 << 20
)

// ProviderOptions describe an OpenID Connect provider.
type ProviderOptions struct {
	Issuer       string `yaml:"issuer"`
	ClientID     string `yaml:"client_id"`
	ClientSecret string `yaml:"client_secret"`
	// Name is the provider's name for users; empty means the issuer's host.
	Name string `yaml:"name"`
	// Scopes are requested besides openid.
	Scopes []string `yaml:"scopes"`
	// Access is the table of claims: the first row that matches decides.
	Access []Row `yaml:"access"`
}

// Row gives the identities with a claim access to a tenant.
type Row struct {
	// Claim and Value are a claim of the ID token and its value: a text, or one of a list.
	Claim string `yaml:"claim"`
	Value string `yaml:"value"`
	// Tenant and Role are the access of these identities.
	Tenant session.Tenant  `yaml:"tenant"`
	Role   permission.Role `yaml:"role"`
	// User is the name of the user, for a row that matches one identity; empty means a
	// name derived from the issuer and the subject of each.
	User string `yaml:"user"`
}

// Provider is an OpenID Connect provider. It asks for the provider's settings with the
// first login, so that a gateway starts without it.
type Provider struct {
	o      ProviderOptions
	client *http.Client

	mu    sync.Mutex
	found *oidc.Provider
}

// NewProvider checks the options.
func NewProvider(o *ProviderOptions) (*Provider, error) {
	u, err := url.Parse(o.Issuer)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())):
		return nil, fmt.Errorf("issuer %q: %w: want an https URL", o.Issuer, run.ErrMalformed)
	case o.ClientID == "":
		return nil, fmt.Errorf("client_id: %w: it is empty; the provider gives one", run.ErrMalformed)
	case len(o.Access) == 0:
		return nil, fmt.Errorf("access: %w: no row: nobody could log in", run.ErrMalformed)
	}
	for i, r := range o.Access {
		e := Entry{Tenant: r.Tenant, User: r.User, Role: r.Role}
		if e.User == "" {
			e.User = "oidc-0"
		}
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("access: row %d: %w", i+1, err)
		}
		if r.Claim == "" || r.Value == "" {
			return nil, fmt.Errorf("access: row %d: %w: name a claim and its value", i+1, run.ErrMalformed)
		}
	}
	limited := http.DefaultTransport.(*http.Transport).Clone()
	limited.ResponseHeaderTimeout = oidcWithin
	return &Provider{o: *o, client: &http.Client{Timeout: oidcWithin, Transport: bounded{limited}, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}}, nil
}

// ReadProvider reads the file of a provider, see docs/access.md; nil for "". ${NAME} in the
// client's id and secret is the variable NAME that env returns.
func ReadProvider(file string, env func(string) string) (*Provider, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var o ProviderOptions
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&o); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	o.ClientID, o.ClientSecret = os.Expand(o.ClientID, env), os.Expand(o.ClientSecret, env)
	p, err := NewProvider(&o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// bounded limits the size of answers.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxProvider), res.Body}
	}
	return res, err
}

// Name is the provider's name for users.
func (p *Provider) Name() string {
	if p.o.Name != "" {
		return p.o.Name
	}
	u, _ := url.Parse(p.o.Issuer) // checked by NewProvider
	return u.Host
}

// provider returns the provider's settings.
func (p *Provider) provider(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found == nil {
		// The key set keeps this context's values, and not its end.
		found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.client), p.o.Issuer)
		if err != nil {
			return nil, err
		}
		p.found = found
	}
	return p.found, nil
}

func (p *Provider) config(found *oidc.Provider, base string) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.o.ClientID, ClientSecret: p.o.ClientSecret, Endpoint: found.Endpoint(), RedirectURL: base + "/login/callback",
		Scopes: append([]string{oidc.ScopeOpenID}, p.o.Scopes...),
	}
}

// person returns the person whom verified claims stand for.
func (p *Provider) person(issuer, subject string, claims map[string]any) (*Person, error) {
	for _, r := range p.o.Access {
		if !holds(claims[r.Claim], r.Value) {
			continue
		}
		who := &Person{Tenant: r.Tenant, User: r.User, Role: r.Role, Issuer: issuer}
		if who.User == "" {
			h := sha256.Sum256([]byte(issuer + "\x00" + subject))
			who.User = "oidc-" + hex.EncodeToString(h[:10])
		}
		for _, name := range []string{"email", "preferred_username", "name"} {
			if text, _ := claims[name].(string); text != "" && len(text) <= 200 {
				who.Says = text
				break
			}
		}
		return who, nil
	}
	return nil, errNoRow
}

var errNoRow = errors.New("this identity has no access here; the operator adds it to the table of the router")

// holds reports whether a claim is a value or a list that has it.
func holds(claim any, value string) bool {
	if all, ok := claim.([]any); ok {
		return slices.Contains(all, any(value))
	}
	text, ok := claim.(string)
	return ok && text == value
}

// flight is a login that is at the provider, in a cookie of the browser that began it.
type flight struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
	Next     string `json:"x,omitempty"`
}

func (g *Gateway) flightCookie() string {
	if g.o.URL.Scheme == "https" {
		return "__Host-rath-login"
	}
	return g.cookieName() + "-login"
}

// beginOIDC sends the browser to the provider.
func (g *Gateway) beginOIDC(w http.ResponseWriter, r *http.Request) {
	if !g.mayTry(r) {
		g.showLogin(w, http.StatusTooManyRequests, r.FormValue("next"), "There were too many attempts. Wait a few seconds and try again.")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), oidcWithin)
	defer cancel()
	found, err := g.o.OIDC.provider(ctx)
	if err != nil {
		g.away(w, r, err)
		return
	}
	next, _ := localPath(r.FormValue("next"))
	f := flight{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Next: next}
	data, err := json.Marshal(f)
	if err != nil {
		g.away(w, r, err)
		return
	}
	http.SetCookie(w, g.cookie(g.flightCookie(), "/", base64.RawURLEncoding.EncodeToString(data), oidcFor))
	at := g.o.OIDC.config(found, g.o.URL.String()).AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier))
	http.Redirect(w, r, at, http.StatusSeeOther)
}

// away answers a login while the provider does not.
func (g *Gateway) away(w http.ResponseWriter, r *http.Request, err error) {
	g.log.Warn("the identity provider does not answer", "issuer", g.o.OIDC.o.Issuer, "err", err)
	g.showLogin(w, http.StatusServiceUnavailable, r.FormValue("next"), "The identity provider does not answer. Try again in a moment.")
}

// endOIDC begins the page session of an identity that comes from the provider.
func (g *Gateway) endOIDC(w http.ResponseWriter, r *http.Request) {
	f, err := g.flight(w, r)
	if err != nil {
		g.showLogin(w, http.StatusForbidden, "", "This login was not begun here or took too long. Begin again.")
		return
	}
	if problem := r.FormValue("error"); problem != "" {
		g.showLogin(w, http.StatusForbidden, f.Next, "The identity provider refused the login ("+excerpt.Start(problem, 80)+").")
		return
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(r.Context(), g.o.OIDC.client), 2*oidcWithin)
	defer cancel()
	found, err := g.o.OIDC.provider(ctx)
	if err != nil {
		g.away(w, r, err)
		return
	}
	who, err := g.o.OIDC.exchange(ctx, found, g.o.URL.String(), r.FormValue("code"), f)
	switch {
	case errors.Is(err, errNoRow):
		g.showLogin(w, http.StatusForbidden, f.Next, "This identity has no access here. The operator adds it to the table of the router.")
		return
	case err != nil:
		g.log.Warn("a login was refused", "issuer", g.o.OIDC.o.Issuer, "err", err)
		g.showLogin(w, http.StatusForbidden, f.Next, "The identity could not be verified. Begin again; the router's log has the reason.")
		return
	}
	g.begin(w, r, &Entry{Tenant: who.Tenant, User: who.User, Role: who.Role, Says: who.Says, Issuer: who.Issuer, Expires: time.Now().Add(pageFor).UnixMilli()}, f.Next)
}

// flight returns the login of this browser that the provider's answer belongs to, and ends
// it.
func (g *Gateway) flight(w http.ResponseWriter, r *http.Request) (flight, error) {
	var f flight
	c, err := r.Cookie(g.flightCookie())
	if err != nil {
		return f, err
	}
	http.SetCookie(w, g.cookie(g.flightCookie(), "/", "", -time.Second))
	data, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil || f.State == "" || f.Nonce == "" || f.Verifier == "" || subtle.ConstantTimeCompare([]byte(f.State), []byte(r.FormValue("state"))) != 1 {
		return f, errors.New("access: the state is not that of this browser")
	}
	return f, nil
}

// exchange exchanges a code for an ID token and verifies it.
func (p *Provider) exchange(ctx context.Context, found *oidc.Provider, base, code string, f flight) (*Person, error) {
	got, err := p.config(found, base).Exchange(ctx, code, oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return nil, fmt.Errorf("exchange the code: %w", err)
	}
	raw, ok := got.Extra("id_token").(string)
	if !ok {
		return nil, errors.New("the answer has no ID token")
	}
	id, err := found.VerifierContext(ctx, &oidc.Config{ClientID: p.o.ClientID}).Verify(ctx, raw)
	if err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(f.Nonce)) != 1 {
		return nil, errors.New("the nonce of the ID token is not that of this login")
	}
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		return nil, err
	}
	return p.person(id.Issuer, id.Subject, claims)
}
