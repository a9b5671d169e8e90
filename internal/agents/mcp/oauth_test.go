package mcp_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rathcluster/rath/internal/agents/mcp"
	"github.com/rathcluster/rath/internal/testkit/mcptest"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// authorizer is an authorization server and the MCP server that it protects: metadata
// (RFC 8414, RFC 9728), registration (RFC 7591), codes with PKCE (RFC 7636), refresh
// tokens that are good once, and the grant of client credentials.
type authorizer struct {
	t    *testing.T
	srv  *httptest.Server // both
	life time.Duration    // of tokens

	mu       sync.Mutex
	good     map[string]bool   // access tokens
	refresh  map[string]bool   // refresh tokens
	codes    map[string]string // challenge by code
	grants   []string          // that were asked for
	calls    int               // of the MCP server with a good token
	secret   string            // of the client "rath"
	returned url.Values        // the browser's result instead of a code
}

func newAuthorizer(t *testing.T) *authorizer {
	a := &authorizer{t: t, life: time.Hour, good: map[string]bool{}, refresh: map[string]bool{}, codes: map[string]string{}, secret: "client-secret"}
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return mcptest.New("good") }, nil)
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		ok := a.good[token]
		if ok {
			a.calls++
		}
		a.mu.Unlock()
		if !ok {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+a.srv.URL+`/.well-known/oauth-protected-resource/mcp"`)
			http.Error(w, "who is this? "+token, http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	})
	answer := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		must.Report(t, json.NewEncoder(w).Encode(v))
	}
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]any{"resource": a.srv.URL + "/mcp", "authorization_servers": []string{a.srv.URL}, "scopes_supported": []string{"tools"}})
	})
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]any{
			"issuer": a.srv.URL, "authorization_endpoint": a.srv.URL + "/authorize", "token_endpoint": a.srv.URL + "/token",
			"registration_endpoint": a.srv.URL + "/register", "response_types_supported": []string{"code"},
			"code_challenge_methods_supported": []string{"S256"}, "scopes_supported": []string{"tools", "offline_access"},
			"token_endpoint_auth_methods_supported": []string{"client_secret_basic", "none"},
		})
	})
	mux.HandleFunc("/register", func(w http.ResponseWriter, r *http.Request) {
		var meta map[string]any
		must.Report(t, json.NewDecoder(r.Body).Decode(&meta))
		meta["client_id"] = "registered"
		answer(w, http.StatusCreated, meta)
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		a.mu.Lock()
		defer a.mu.Unlock()
		back := url.Values{"state": {q.Get("state")}, "code": {fmt.Sprint("code-", len(a.codes))}}
		a.codes[back.Get("code")] = q.Get("code_challenge")
		if a.returned != nil {
			back = a.returned
		}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		must.Report(t, r.ParseForm())
		a.mu.Lock()
		defer a.mu.Unlock()
		a.grants = append(a.grants, r.PostForm.Get("grant_type"))
		ok := false
		switch r.PostForm.Get("grant_type") {
		case "client_credentials":
			client, secret, _ := r.BasicAuth()
			ok = client == "rath" && secret == a.secret && r.PostForm.Get("resource") == a.srv.URL+"/mcp"
		case "authorization_code":
			sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
			ok = a.codes[r.PostForm.Get("code")] == base64.RawURLEncoding.EncodeToString(sum[:])
		case "refresh_token":
			ok = a.refresh[r.PostForm.Get("refresh_token")]
			delete(a.refresh, r.PostForm.Get("refresh_token"))
		}
		if !ok {
			answer(w, 400, map[string]any{"error": "invalid_grant", "error_description": "not good: " + r.PostForm.Encode()})
			return
		}
		n := len(a.grants)
		access, refresh := fmt.Sprint("access-secret-", n), fmt.Sprint("refresh-secret-", n)
		a.good[access], a.refresh[refresh] = true, true
		out := map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": int(a.life.Seconds())}
		if r.PostForm.Get("grant_type") != "client_credentials" {
			out["refresh_token"] = refresh
		}
		answer(w, 200, out)
	})
	a.srv = httptest.NewServer(mux)
	t.Cleanup(a.srv.Close)
	return a
}

// revoke makes the access tokens that there are void.
func (a *authorizer) revoke() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.good)
}

func (a *authorizer) asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.grants)
}

// entry is the entry of the server with settings of oauth.
func (a *authorizer) entry(dir, oauth string) *mcp.Server {
	a.t.Helper()
	l := must.Get(mcp.Parse(filepath.Join(dir, "mcp.yaml"), []byte("servers:\n  s: {url: "+a.srv.URL+"/mcp, oauth: {"+oauth+"}}\n")))(a.t)
	return l.All()[0]
}

// browser is a user who consents: it follows an address and its redirects.
func (a *authorizer) browser(address string) {
	resp, err := http.Get(address) //nolint:noctx
	if err != nil {
		a.t.Error(err)
		return
	}
	_ = resp.Body.Close()
}

// TestClientCredentials: a node gets tokens for itself, one for all connections and
// requests, another one when that ends or is revoked, and asks no authorization server
// but its entry's.
func TestClientCredentials(t *testing.T) {
	a := newAuthorizer(t)
	t.Setenv("CLIENT_SECRET", a.secret)
	s := a.entry(t.TempDir(), "issuer: "+a.srv.URL+", client: rath, secret: env:CLIENT_SECRET, scopes: [tools]")
	for range 2 {
		c := connect(t, s)
		if o := call(c, "s__echo", `{"text":"hi"}`); string(o.Body) != `{"text":"you said hi"}` {
			t.Errorf("%s, %v", o.Body, o.Err)
		}
	}
	if got := a.asked(); len(got) != 1 {
		t.Errorf("it asked for %v, want one token for two connections", got)
	}
	a.revoke()
	if o := call(connect(t, s), "s__echo", `{"text":"again"}`); string(o.Body) != `{"text":"you said again"}` {
		t.Errorf("after the token was revoked: %s, %v", o.Body, o.Err)
	}
	if got := a.asked(); len(got) != 2 {
		t.Errorf("it asked for %v, want one more token", got)
	}
	a.revoke()
	a.secret = "another"
	c, err := s.Connect(t.Context(), os.Getenv, nil)
	if err == nil {
		_ = c.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "invalid_grant") || strings.Contains(err.Error(), "secret-") || strings.Contains(err.Error(), "client-secret") {
		t.Errorf("a secret that is wrong: %v", err)
	}
	t.Setenv("CLIENT_SECRET", "")
	if c, err := s.Connect(t.Context(), os.Getenv, nil); err == nil || !strings.Contains(err.Error(), "CLIENT_SECRET") {
		t.Errorf("a secret that is not set: %v", errorOf(c, err))
	}
}

func errorOf(c *mcp.Conn, err error) error {
	if err == nil {
		_ = c.Close()
	}
	return err
}

// TestLogin: a user signs in once, and nodes refresh and store the token. Two nodes that
// share the file do not invalidate each other's token.
func TestLogin(t *testing.T) {
	for _, tc := range []struct{ name, oauth string }{
		{"registered", "login: s.login.json"},
		{"known client", "login: s.login.json, issuer: ISSUER, client: rath, secret: env:CLIENT_SECRET"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newAuthorizer(t)
			t.Setenv("CLIENT_SECRET", a.secret)
			dir := t.TempDir()
			oauth := strings.ReplaceAll(tc.oauth, "ISSUER", a.srv.URL)
			s, other := a.entry(dir, oauth), a.entry(dir, oauth)
			if c, err := s.Connect(t.Context(), os.Getenv, nil); err == nil || !strings.Contains(err.Error(), `run "rath mcp login s"`) {
				t.Errorf("before the login: %v", errorOf(c, err))
			}
			must.Do(t, s.Login(t.Context(), os.Getenv, a.browser))
			fi, err := os.Stat(filepath.Join(dir, "s.login.json"))
			if err != nil || fi.Mode().Perm() != 0o600 {
				t.Fatalf("%v, %v", fi, err)
			}
			echo := func(s *mcp.Server, text string) {
				t.Helper()
				if o := call(connect(t, s), "s__echo", `{"text":"`+text+`"}`); string(o.Body) != `{"text":"you said `+text+`"}` {
					t.Errorf("%s, %v", o.Body, o.Err)
				}
			}
			echo(s, "first")
			a.revoke()
			echo(s, "refreshed")
			echo(other, "the other node")
			if got, want := a.asked(), []string{"authorization_code", "refresh_token"}; !slices.Equal(got, want) {
				t.Errorf("asked for %v, want %v", got, want)
			}
			a.revoke()
			a.mu.Lock()
			clear(a.refresh)
			a.mu.Unlock()
			c, err := s.Connect(t.Context(), os.Getenv, nil)
			if err = errorOf(c, err); err == nil || !strings.Contains(err.Error(), `sign in with "rath mcp login s"`) || strings.Contains(err.Error(), "secret-") {
				t.Errorf("a login that has ended: %v", err)
			}
		})
	}
}

// TestBadLogins: after a bad redirect of the browser, no file is written.
func TestBadLogins(t *testing.T) {
	for name, tc := range map[string]struct {
		back url.Values
		want string
	}{
		"refused":       {url.Values{"error": {"access_denied"}, "error_description": {"not today"}}, "not today"},
		"another state": {url.Values{"state": {"x"}, "code": {"y"}}, "state mismatch"},
		"nothing":       {url.Values{}, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAuthorizer(t)
			a.returned = tc.back
			dir := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			browser := func(address string) {
				a.browser(address)
				if len(tc.back) == 0 { // and Login stops waiting
					cancel()
				}
			}
			if err := a.entry(dir, "login: f").Login(ctx, os.Getenv, browser); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v; want %q", err, tc.want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("%v was written, %v", left, err)
			}
		})
	}
	a := newAuthorizer(t)
	if err := a.entry(t.TempDir(), "login: f, issuer: http://127.0.0.1:1, client: x").Login(t.Context(), os.Getenv, a.browser); err == nil || !strings.Contains(err.Error(), "issuer") {
		t.Errorf("another authorization server than the entry's: %v", err)
	}
	t.Setenv("S", "client-secret")
	if err := a.entry(t.TempDir(), "issuer: http://127.0.0.1:1, client: x, secret: env:S").Login(t.Context(), os.Getenv, a.browser); err == nil || !strings.Contains(err.Error(), "has no login") {
		t.Errorf("an entry without login: %v", err)
	}
}

// TestLoginOfSeveral: processes that have one login, and whose token has ended at the same
// time, use its refresh token once.
func TestLoginOfSeveral(t *testing.T) {
	a := newAuthorizer(t)
	dir := t.TempDir()
	must.Do(t, a.entry(dir, "login: f").Login(t.Context(), os.Getenv, a.browser))
	a.revoke()
	var all sync.WaitGroup
	for range 8 {
		s := a.entry(dir, "login: f") // of its own, as in a process of its own
		all.Go(func() {
			c, err := s.Connect(t.Context(), os.Getenv, nil)
			if err = errorOf(c, err); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, want := a.asked(), []string{"authorization_code", "refresh_token"}; !slices.Equal(got, want) {
		t.Errorf("asked for %v, want %v", got, want)
	}
	must.Do(t, os.Chmod(filepath.Join(dir, "f"), 0o644))
	c, err := a.entry(dir, "login: f").Connect(t.Context(), os.Getenv, nil)
	if err = errorOf(c, err); err == nil || !strings.Contains(err.Error(), "chmod 600") || strings.Contains(err.Error(), dir) {
		t.Errorf("a file that others read: %v", err)
	}
}
