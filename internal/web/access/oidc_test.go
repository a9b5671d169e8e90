package access_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/web/access"
)

// provider is an OpenID Connect provider: it asks nobody, and issues the claims that a test
// sets.
type provider struct {
	*httptest.Server
	key *rsa.PrivateKey

	mu     sync.Mutex
	claims map[string]any // besides the standard ones
	change func(header, claims map[string]any)
	sign   *rsa.PrivateKey // nil: key
	noKeys bool            // its key set does not answer
	asked  url.Values      // the last request for a code
	spent  bool
}

func startProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{key: must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)}
	mux := http.NewServeMux()
	reply := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		must.Report(t, json.NewEncoder(w).Encode(v))
	}
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256", "none"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.noKeys {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		e := big.NewInt(int64(p.key.E)).Bytes()
		reply(w, map[string]any{"keys": []any{map[string]any{"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig", "n": b64(p.key.N.Bytes()), "e": b64(e)}}})
	})
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked, p.spent = r.URL.Query(), false
		to := must.Get(url.Parse(p.asked.Get("redirect_uri")))(t)
		to.RawQuery = url.Values{"code": {"the-code"}, "state": {p.asked.Get("state")}}.Encode()
		http.Redirect(w, r, to.String(), http.StatusFound)
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		id, secret, _ := r.BasicAuth()
		verifier := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if id != "rath" || secret != "s3cret" || r.PostFormValue("code") != "the-code" || p.spent || b64(verifier[:]) != p.asked.Get("code_challenge") || p.asked.Get("code_challenge_method") != "S256" {
			w.WriteHeader(http.StatusBadRequest)
			reply(w, map[string]string{"error": "invalid_grant"})
			return
		}
		p.spent = true
		reply(w, map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": p.idToken(t)})
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) idToken(t *testing.T) string {
	header := map[string]any{"alg": "RS256", "kid": "1", "typ": "JWT"}
	claims := map[string]any{
		"iss": p.URL, "sub": "subject-1", "aud": "rath", "exp": time.Now().Add(time.Minute).Unix(), "iat": time.Now().Unix(), "nonce": p.asked.Get("nonce"), "email": "ana@example.com",
	}
	maps.Copy(claims, p.claims)
	if p.change != nil {
		p.change(header, claims)
	}
	text := b64(must.Get(json.Marshal(header))(t)) + "." + b64(must.Get(json.Marshal(claims))(t))
	if header["alg"] == "none" {
		return text + "."
	}
	key := p.key
	if p.sign != nil {
		key = p.sign
	}
	h := sha256.Sum256([]byte(text))
	return text + "." + b64(must.Get(rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, h[:]))(t))
}

func b64(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

func (p *provider) set(change func(p *provider)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims, p.change, p.sign, p.noKeys = map[string]any{"groups": []string{"staff", "approvers"}}, nil, nil, false
	if change != nil {
		change(p)
	}
}

// identities starts a gateway whose pages accept identities of the provider.
func (w *world) identities(t *testing.T, p *provider) *door {
	t.Helper()
	made := must.Get(access.NewProvider(&access.ProviderOptions{
		Issuer: p.URL, ClientID: "rath", ClientSecret: "s3cret", Name: "Example", Scopes: []string{"email"},
		Access: []access.Row{
			{Claim: "groups", Value: "approvers", Tenant: "default", Role: permission.RoleApprove},
			{Claim: "email", Value: "eve@example.com", Tenant: "default", Role: permission.RoleOperate, User: "eve"},
		},
	}))(t)
	return w.gateway(t, func(o *access.Options) { o.OIDC = made })
}

// follow walks through a login and returns the gateway's answer to the provider's redirect.
func follow(t *testing.T, d *door, c *http.Client, next string, tamper func(u *url.URL)) reply {
	t.Helper()
	begun := send(t, c, http.MethodGet, d.url+"/login/oidc?next="+url.QueryEscape(next), "")
	if begun.status != http.StatusSeeOther {
		return begun
	}
	there := send(t, c, http.MethodGet, begun.header.Get("Location"), "")
	back := must.Get(url.Parse(there.header.Get("Location")))(t)
	if tamper != nil {
		tamper(back)
	}
	return send(t, c, http.MethodGet, back.String(), "")
}

// TestOIDC logs identities in by the table of claims.
func TestOIDC(t *testing.T) {
	w := newWorld(t)
	p := startProvider(t)
	d := w.identities(t, p)
	p.set(nil)
	c := browser(t)
	if got := send(t, c, http.MethodGet, d.url+"/login?next=/t/default/runs", ""); !strings.Contains(got.body, "Log in with Example") {
		t.Errorf("the login does not name the provider: %s", got.body)
	}
	if got := follow(t, d, c, "/t/default/runs", nil); got.status != 303 || got.header.Get("Location") != "/t/default/runs" {
		t.Fatalf("%d %s", got.status, got.body)
	}
	page := send(t, c, http.MethodGet, d.url+"/t/default/", "")
	if !strings.HasPrefix(page.body, "default oidc-") || !strings.Contains(page.body, " approve page ") || strings.Contains(page.body, "ana@example.com") {
		t.Errorf("%d %q", page.status, page.body)
	}
	p.set(func(p *provider) { p.claims = map[string]any{"email": "eve@example.com"} })
	eve := browser(t)
	if got := follow(t, d, eve, "//evil.example", nil); got.status != 303 || got.header.Get("Location") != "/t/default/" {
		t.Errorf("%d %v", got.status, got.header)
	}
	if page := send(t, eve, http.MethodGet, d.url+"/t/default/", ""); !strings.HasPrefix(page.body, "default eve operate page ") {
		t.Errorf("%d %q", page.status, page.body)
	}
}

// TestOIDCRefused sends answers of a provider that must not log anyone in.
func TestOIDCRefused(t *testing.T) {
	w := newWorld(t)
	p := startProvider(t)
	other := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	for name, tc := range map[string]struct {
		set    func(p *provider)
		tamper func(u *url.URL)
	}{
		"no row":            {set: func(p *provider) { p.claims = nil }},
		"a group in a text": {set: func(p *provider) { p.claims = map[string]any{"groups": "staff approvers"} }},
		"alg none":          {set: func(p *provider) { p.change = func(h, _ map[string]any) { h["alg"] = "none" } }},
		"another key":       {set: func(p *provider) { p.sign = other }},
		"another issuer":    {set: func(p *provider) { p.change = func(_, c map[string]any) { c["iss"] = "https://evil.example" } }},
		"another audience":  {set: func(p *provider) { p.change = func(_, c map[string]any) { c["aud"] = "other" } }},
		"expired": {set: func(p *provider) {
			p.change = func(_, c map[string]any) { c["exp"] = time.Now().Add(-time.Minute).Unix() }
		}},
		"another nonce":      {set: func(p *provider) { p.change = func(_, c map[string]any) { c["nonce"] = "x" } }},
		"no nonce":           {set: func(p *provider) { p.change = func(_, c map[string]any) { delete(c, "nonce") } }},
		"no keys":            {set: func(p *provider) { p.noKeys = true }},
		"another state":      {tamper: func(u *url.URL) { set(u, "state", "x") }},
		"another code":       {tamper: func(u *url.URL) { set(u, "code", "x") }},
		"the user said no":   {tamper: func(u *url.URL) { set(u, "error", "access_denied") }},
		"an empty state":     {tamper: func(u *url.URL) { set(u, "state", "") }},
		"markup in an error": {tamper: func(u *url.URL) { set(u, "error", "<script>alert(1)</script>") }},
	} {
		d := w.identities(t, p) // keys are cached
		p.set(tc.set)
		c := browser(t)
		got := follow(t, d, c, "", tc.tamper)
		if got.status != 403 || strings.Contains(got.body, "<script>alert") {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if page := send(t, c, http.MethodGet, d.url+"/t/default/", ""); page.status != 303 {
			t.Errorf("%s: a page answers %d", name, page.status)
		}
	}
	d := w.identities(t, p)
	p.set(nil)
	var there string
	if got := follow(t, d, browser(t), "", func(u *url.URL) { there = u.String() }); got.status != 303 {
		t.Errorf("the right answer: %d", got.status)
	}
	if got := send(t, browser(t), http.MethodGet, there, ""); got.status != 403 { // the link in another browser
		t.Errorf("the answer to another browser: %d", got.status)
	}
	p.Close()
	d = w.identities(t, p)
	if got := follow(t, d, browser(t), "", nil); got.status != 503 {
		t.Errorf("without the provider: %d", got.status)
	}
}

func set(u *url.URL, name, value string) {
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
}
