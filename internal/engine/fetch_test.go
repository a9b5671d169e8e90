package engine_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/sandbox/egress"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestFetch: the tool reaches only the hosts on the list of the session's sandbox, with
// the secrets of the node, and each request is evidence of its step.
func TestFetch(t *testing.T) {
	const secret = "token-of-the-node"
	server := func(away string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case away != "" && r.URL.Path == "/away":
				http.Redirect(w, r, away, http.StatusFound)
			default:
				fmt.Fprintf(w, "<h1>%s</h1><p>as %s <a href=/next>next</a>", r.Host, r.Header.Get("Authorization"))
			}
		})
	}
	plain := httptest.NewServer(server("http://inside.org/admin"))
	defer plain.Close()
	proxies := egress.Options{
		Private: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
			if host == "inside.org" {
				return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		},
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, plain.Listener.Addr().String())
		},
	}
	var err error
	if proxies.Secrets, err = egress.ParseSecrets("secret.org Authorization: ${T}", func(string) string { return secret }); err != nil {
		t.Fatal(err)
	}
	fetch, _ := tool.ByName(tool.Fetch)
	for _, tt := range []struct {
		name, network, url string
		effect             string
		body               string // part of the result for the model
		requests           string // host, status and rejection of each
	}{
		{"a page", "read_only:docs.org", "http://docs.org/", "sandboxed", `"data":"# docs.org\n\nas [next](http://docs.org/next)\n"`, "docs.org 200"},
		{"on a list that may change something", "list:docs.org", "http://docs.org/", "non_idempotent", "# docs.org", "docs.org 200"},
		{"another host", "list:docs.org", "http://other.org/", "non_idempotent", `"error_kind":"unreachable"`, "other.org 403 not among the hosts"},
		{"a redirect to a private address", "list:docs.org,inside.org", "http://docs.org/away", "non_idempotent", "inside.org is at 10.0.0.1, which is no address of the Internet", "docs.org 302, inside.org 403 is no address"},
		{"a secret without TLS", "list:secret.org", "http://secret.org/", "non_idempotent", "a secret goes to secret.org, so it is reached by https alone", "secret.org 403 by https alone"},
		{"no list", "none", "http://docs.org/", "sandboxed", "rath run --allow HOST", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var w world
			r := rooms(false)
			rt := w.placedRuntime(t, r, blob.NewMemory())
			rt.Runtime.Workspaces.Egress = proxies
			var body string
			ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
				s, r, err := flow.CallTool(ctx, s, fetch, map[string]string{"url": tt.url})
				if err == nil {
					body = fmt.Sprintf("%s", r.Body)
				}
				return s, err
			}, func(task *journal.Task) { task.Sandbox = journal.Sandbox{Backend: "local", Network: tt.network} })
			forward(t, t.Context(), ex, run.Succeeded)
			if !strings.Contains(body, tt.body) || strings.Contains(body, secret) {
				t.Errorf("the model reads %s, want %s in it", body, tt.body)
			}
			var told []string
			calls := 0
			for _, d := range facts[journal.StepCompleted](t, &w, journal.KindStepCompleted) {
				if d.Call != "" {
					calls++
					if d.Effect != tt.effect {
						t.Errorf("the effect is %s, want %s", d.Effect, tt.effect)
					}
				}
				for _, q := range d.Requests {
					told = append(told, fmt.Sprintf("%s %d %s", q.Host, q.Status, q.Refused))
				}
			}
			if calls != 1 {
				t.Errorf("%d calls are recorded", calls)
			}
			want := strings.Split(tt.requests, ", ")
			if tt.requests == "" {
				want = nil
			}
			if len(told) != len(want) {
				t.Fatalf("the evidence is %q, want %q", told, want)
			}
			for i, q := range told {
				host, says := want[i], ""
				if f := strings.SplitN(want[i], " ", 3); len(f) == 3 {
					host, says = f[0]+" "+f[1], f[2]
				}
				if !strings.HasPrefix(q, host) || !strings.Contains(q, says) {
					t.Errorf("the evidence is %q, want %q", q, want[i])
				}
			}
			rt.Runtime.Leases.Close()
			if _, open := r.Opened(); open != 0 {
				t.Errorf("%d sandboxes are left open", open)
			}
		})
	}
}
