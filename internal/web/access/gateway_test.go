package access_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/web/access"
)

// TestBearer sends right and wrong tokens.
func TestBearer(t *testing.T) {
	w := newWorld(t)
	d := w.gateway(t, nil)
	token, _ := w.token(t, access.Entry{User: "ana", Role: permission.RoleApprove})
	soon, _ := w.token(t, access.Entry{Expires: time.Now().Add(700 * time.Millisecond).UnixMilli()})
	gone, id := w.token(t, access.Entry{})
	if err := w.operator.RevokeToken(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // the expiry of soon
	c := browser(t)
	if got := send(t, c, http.MethodGet, d.url+"/api/v1/x", "", bearer(token)...); got.status != 200 || got.body != "default ana approve api " {
		t.Errorf("the right token: %d %q", got.status, got.body)
	}
	// A token of another installation, and of this one with another secret.
	foreign := token[:len("rath_")+12] + "_" + strings.Repeat("a", 52)
	for name, head := range map[string][]string{
		"none": nil, "foreign": bearer(foreign), "expired": bearer(soon), "revoked": bearer(gone), "cut": bearer(token[:len(token)-1]),
		"longer": bearer(token + "a"), "another scheme": {"Authorization", "Basic " + token}, "twice": append(bearer(token), bearer(token)...),
		"as a JWT without a signature": bearer("eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbmEifQ."), "a cookie": {"Cookie", "rath=" + token}, "empty": bearer(""),
		"id alone": bearer("rath_" + id + "_"), "wildcards": bearer("rath_*_" + strings.Repeat("a", 52)), "a session's key": bearer("rath_session.aaaa_" + strings.Repeat("a", 52)),
	} {
		got := send(t, c, http.MethodGet, d.url+"/api/v1/x", "", head...)
		if got.status != 401 || got.header.Get("WWW-Authenticate") == "" || got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if got := send(t, c, http.MethodGet, d.url+"/other/v1/x", "", head...); got.status != 401 || got.body != "other unauthenticated" {
			t.Errorf("%s, at another protocol's door: %d %s", name, got.status, got.body)
		}
	}
	if got := send(t, c, http.MethodGet, d.url+"/other/v1/x", "", bearer(token)...); got.status != 200 || got.body != "default ana approve api " {
		t.Errorf("at another protocol's door: %d %q", got.status, got.body)
	}
	if got := send(t, c, http.MethodGet, d.url+"/api/v1/x?access_token="+token, ""); got.status != 401 {
		t.Errorf("a token in the address: %d", got.status)
	}
}

// TestRevocation revokes a token while it streams from two gateways, and ends a page
// session that began with it.
func TestRevocation(t *testing.T) {
	w := newWorld(t)
	doors := []*door{w.gateway(t, nil), w.gateway(t, nil)}
	token, id := w.token(t, access.Entry{})
	page := browser(t)
	if got := doors[0].login(t, page, token, ""); got.status != 303 || got.header.Get("Location") != "/t/default/" {
		t.Fatalf("login: %d %s", got.status, got.body)
	}
	answers := make(chan string, 3)
	stream := func(c *http.Client, at string, head ...string) {
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, at, http.NoBody))(t)
		for i := 0; i < len(head); i += 2 {
			r.Header.Set(head[i], head[i+1])
		}
		res := must.Get(c.Do(r))(t) // its header has come: it streams
		if res.StatusCode != 200 {
			t.Fatalf("%s: %d", at, res.StatusCode)
		}
		go func() {
			defer res.Body.Close()
			body, _ := io.ReadAll(res.Body)
			answers <- string(body)
		}()
	}
	for _, d := range doors {
		stream(browser(t), d.url+"/api/v1/stream", bearer(token)...)
	}
	stream(page, doors[0].url+"/events/x")
	select {
	case a := <-answers:
		t.Fatalf("a stream ended before the revocation: %q", a)
	case <-time.After(1200 * time.Millisecond): // longer than between two reads
	}
	if err := w.operator.RevokeToken(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if a := <-answers; a != "ended" {
			t.Errorf("a stream after the revocation: %q", a)
		}
	}
	for _, d := range doors {
		if got := send(t, browser(t), http.MethodGet, d.url+"/api/v1/x", "", bearer(token)...); got.status != 401 {
			t.Errorf("%d after the revocation", got.status)
		}
	}
	if got := send(t, page, http.MethodGet, doors[0].url+"/t/default/", ""); got.status != 303 || !strings.HasPrefix(got.header.Get("Location"), "/login?") {
		t.Errorf("the page session: %d", got.status)
	}
}

// TestPages logs in with a code, writes with the form's token, and logs out: then another
// gateway refuses the session, too.
func TestPages(t *testing.T) {
	w := newWorld(t)
	person := &access.Person{Tenant: "default", User: "ana", Role: permission.RoleClient}
	d := w.gateway(t, func(o *access.Options) { o.Person, o.Opener = person, "opens" })
	c := browser(t)
	if got := send(t, c, http.MethodGet, d.url+"/t/default/runs?x=1", ""); got.status != 303 || got.header.Get("Location") != "/login?next="+url.QueryEscape("/t/default/runs?x=1") {
		t.Errorf("without a session: %d %v", got.status, got.header)
	}
	code := d.NewCode()
	if got := send(t, c, http.MethodGet, d.url+"/login?next=/t/default/", ""); got.status != 200 || got.header.Get("Cache-Control") != "no-store" || got.header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("the login: %d %v", got.status, got.header)
	}
	for _, at := range []string{"/login?secret=" + code, "/login?code=" + code} { // GET spends no code
		if got := send(t, c, http.MethodGet, d.url+at, ""); got.status != 200 {
			t.Errorf("%s: %d", at, got.status)
		}
	}
	if got := d.login(t, browser(t), "wrong", ""); got.status != 403 {
		t.Errorf("a wrong code: %d", got.status)
	}
	got := d.login(t, c, code, "/t/default/runs?x=1")
	if got.status != 303 || got.header.Get("Location") != "/t/default/runs?x=1" {
		t.Fatalf("login: %d %s", got.status, got.body)
	}
	set := got.header.Get("Set-Cookie")
	port := parsed(t, d.url).Port()
	if !strings.HasPrefix(set, "rath-"+port+"=") || !strings.Contains(set, "HttpOnly") || !strings.Contains(set, "SameSite=Lax") || !strings.Contains(set, "Path=/;") || strings.Contains(set, "Secure") {
		t.Errorf("the cookie is %q", set)
	}
	if got := d.login(t, browser(t), code, ""); got.status != 403 {
		t.Errorf("a code was spent twice: %d", got.status)
	}
	page := send(t, c, http.MethodGet, d.url+"/t/default/", "")
	form := formToken.FindString(page.body)
	if page.body != "default ana client page "+form || form == "" {
		t.Fatalf("a page: %d %q", page.status, page.body)
	}
	if got := send(t, c, http.MethodGet, d.url+"/api/v1/x", ""); got.status != 401 {
		t.Errorf("the API takes a cookie: %d", got.status)
	}
	body := url.Values{access.FormField: {form}}.Encode()
	if got := send(t, c, http.MethodPost, d.url+"/t/default/act", body, from(d.url)...); got.status != 200 {
		t.Errorf("a form: %d %s", got.status, got.body)
	}
	for name, tc := range map[string]struct {
		body string
		head []string
	}{
		"no token":           {"x=1", from(d.url)},
		"a wrong token":      {access.FormField + "=" + strings.Repeat("0", 64), from(d.url)},
		"another site":       {body, []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}},
		"another port":       {body, []string{"Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site"}},
		"old and elsewhere":  {body, []string{"Origin", "https://evil.example"}},
		"no origin":          {body, []string{"Origin", "null"}},
		"no browser":         {body, nil},
		"a frame of another": {body, []string{"Sec-Fetch-Site", "cross-site"}},
	} {
		if got := send(t, c, http.MethodPost, d.url+"/t/default/act", tc.body, tc.head...); got.status != 403 {
			t.Errorf("a form with %s: %d %s", name, got.status, got.body)
		}
	}
	if got := send(t, c, http.MethodPost, d.url+"/logout", "", from(d.url)...); got.status != 403 {
		t.Errorf("a logout without a token: %d", got.status)
	}
	other := w.gateway(t, func(o *access.Options) { o.URL = parsed(t, d.url) })
	at := other.url // reached under the name of the first
	if got := send(t, c, http.MethodGet, at+"/t/default/", "", "Host", parsed(t, d.url).Host); got.status != 200 {
		t.Errorf("another gateway: %d", got.status)
	}
	if got := send(t, c, http.MethodPost, d.url+"/logout", body, from(d.url)...); got.status != 303 {
		t.Errorf("logout: %d %s", got.status, got.body)
	}
	for until := time.Now().Add(2 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		got := send(t, browser(t), http.MethodGet, at+"/t/default/", "", "Host", parsed(t, d.url).Host, "Cookie", strings.Split(set, ";")[0])
		if got.status == 303 {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("another gateway takes the session two seconds after the logout: %d", got.status)
		}
	}
}

// TestOpener asks for a login code as `rath open` does.
func TestOpener(t *testing.T) {
	w := newWorld(t)
	d := w.gateway(t, func(o *access.Options) {
		o.Person, o.Opener = &access.Person{Tenant: "default", User: "ana", Role: permission.RoleClient}, "opens"
	})
	if got := send(t, browser(t), http.MethodPost, d.url+"/login/code", "", bearer("guess")...); got.status != 401 {
		t.Errorf("a guess: %d %s", got.status, got.body)
	}
	got := send(t, browser(t), http.MethodPost, d.url+"/login/code", "", bearer("opens")...)
	code := strings.Trim(strings.TrimPrefix(strings.TrimSpace(got.body), `{"code":`), `"}`)
	if in := d.login(t, browser(t), code, ""); got.status != 200 || in.status != 303 {
		t.Errorf("%d %q, login: %d", got.status, got.body, in.status)
	}
}

// TestHosts refuses hosts that are not the gateway's, and accepts the names of this machine.
func TestHosts(t *testing.T) {
	w := newWorld(t)
	d := w.gateway(t, nil)
	port := parsed(t, d.url).Port()
	for host, want := range map[string]int{
		"127.0.0.1:" + port: 200, "localhost:" + port: 200, "[::1]:" + port: 200,
		"evil.example": 421, "evil.example:" + port: 421, "localhost": 421, "127.0.0.1:1": 421, "127.0.0.1.evil.example:" + port: 421, "localhost.evil.example:" + port: 421,
	} {
		if got := send(t, browser(t), http.MethodGet, d.url+"/login", "", "Host", host); got.status != want {
			t.Errorf("host %s: %d, want %d", host, got.status, want)
		}
	}
	public := w.gateway(t, func(o *access.Options) { o.URL = parsed(t, "https://rath.example.com") })
	for host, want := range map[string]int{"rath.example.com": 200, "RATH.example.com": 200, "localhost:" + port: 421, "evil.example": 421} {
		got := send(t, browser(t), http.MethodGet, public.url+"/login", "", "Host", host, "X-Forwarded-Host", "rath.example.com", "Forwarded", "host=rath.example.com")
		if got.status != want {
			t.Errorf("host %s: %d, want %d", host, got.status, want)
		}
	}
	token, _ := w.token(t, access.Entry{})
	got := send(t, browser(t), http.MethodPost, public.url+"/login", "secret="+token, "Host", "rath.example.com", "Origin", "https://rath.example.com", "Sec-Fetch-Site", "same-origin")
	if set := got.header.Get("Set-Cookie"); got.status != 303 || !strings.HasPrefix(set, "__Host-rath=") || !strings.Contains(set, "; Secure") {
		t.Errorf("the cookie behind https is %q", set)
	}
	for text, insecure := range map[string]bool{"http://rath.example.com": false, "rath.example.com": true, "https://rath.example.com/x": true, "ftp://x": true, "https://u@x": true, "": true} {
		if u, err := access.ParseURL(text, insecure); err == nil {
			t.Errorf("%q is %v", text, u)
		}
	}
	if _, err := access.ParseURL("http://rath.example.com", true); err != nil {
		t.Error(err)
	}
}

// TestNext lets a login lead to pages of this server alone.
func TestNext(t *testing.T) {
	w := newWorld(t)
	d := w.gateway(t, nil)
	token, _ := w.token(t, access.Entry{})
	for next, want := range map[string]string{
		"/t/default/runs/7f3a?x=%2F%2Fy#z": "/t/default/runs/7f3a?x=%2F%2Fy#z", "": "/t/default/", "//evil.example": "/t/default/", "https://evil.example": "/t/default/",
		`/\evil.example`: "/t/default/", "/%5Cevil.example": "/t/default/", "/%2F/evil.example": "/t/default/", "javascript:alert(1)": "/t/default/", "/\t/evil.example": "/t/default/",
		"/x\r\nSet-Cookie: a=b": "/t/default/", "t/default/": "/t/default/", "/login": "/t/default/", "/logout": "/t/default/", "///evil.example": "/t/default/",
	} {
		if got := d.login(t, browser(t), token, next); got.status != 303 || got.header.Get("Location") != want {
			t.Errorf("next %q leads to %q (%d), want %q", next, got.header.Get("Location"), got.status, want)
		}
	}
}

// TestOrigins answers scripts of listed origins, and no other.
func TestOrigins(t *testing.T) {
	w := newWorld(t)
	d := w.gateway(t, func(o *access.Options) { o.Origins = []string{"https://tool.example"} })
	token, _ := w.token(t, access.Entry{})
	for origin, want := range map[string]string{"https://tool.example": "https://tool.example", "https://evil.example": "", "null": ""} {
		got := send(t, browser(t), http.MethodGet, d.url+"/api/v1/x", "", append(bearer(token), "Origin", origin)...)
		if got.header.Get("Access-Control-Allow-Origin") != want || got.header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("origin %s: %v", origin, got.header)
		}
	}
	if got := send(t, browser(t), http.MethodOptions, d.url+"/api/v1/x", "", "Origin", "https://tool.example"); got.status != 204 {
		t.Errorf("a preflight: %d", got.status)
	}
}

// TestGuesses bounds the guesses of login codes.
func TestGuesses(t *testing.T) {
	w := newWorld(t)
	d := w.gateway(t, nil)
	c := browser(t)
	attempts := 0
	for attempts < 100 && d.login(t, c, "guess", "").status == 403 {
		attempts++
	}
	if attempts < 10 || attempts > 40 {
		t.Errorf("%d guesses of login codes were answered", attempts)
	}
}

func parsed(t *testing.T, text string) *url.URL {
	t.Helper()
	return must.Get(access.ParseURL(text, false))(t)
}
