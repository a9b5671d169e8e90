package kubernetes

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestMode tests API servers with, without and with half of the API of claims.
func TestMode(t *testing.T) {
	list := func(names ...string) string {
		var all []string
		for _, n := range names {
			all = append(all, fmt.Sprintf(`{"name":%q,"namespaced":true,"kind":"K","verbs":["create"]}`, n))
		}
		return `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"extensions.agents.x-k8s.io/v1beta1","resources":[` + strings.Join(all, ",") + `]}`
	}
	const none = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","code":404}`
	for name, tc := range map[string]struct {
		code       int
		body, mode string
		want       string // a mode, or the text of an error
	}{
		"claims":             {200, list("sandboxclaims", "sandboxclaims/status", "sandboxwarmpools", "sandboxtemplates"), "", ModeClaim},
		"claims, asked for":  {200, list("sandboxclaims", "sandboxwarmpools", "sandboxtemplates"), ModeClaim, ModeClaim},
		"claims, pods asked": {200, list("sandboxclaims", "sandboxwarmpools", "sandboxtemplates"), ModePod, ModePod},
		"none":               {404, none, "", ModePod},
		"none, asked for":    {404, none, ModeClaim, "the API server has no extensions.agents.x-k8s.io/v1beta1; install agent-sandbox"},
		"templates alone":    {200, list("sandboxtemplates"), "", ModePod},
		"away":               {503, "", "", "ask for /apis/extensions.agents.x-k8s.io/v1beta1"},
		"no such mode":       {200, list(), "warm", `no such way to make pods: "warm"`},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/apis/extensions.agents.x-k8s.io/v1beta1" {
					t.Errorf("asked for %s", r.URL)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.code)
				fmt.Fprint(w, tc.body)
			}))
			defer server.Close()
			file := filepath.Join(t.TempDir(), "config")
			config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c","namespace":"n"}}]}`, server.URL)
			must.Do(t, os.WriteFile(file, []byte(config), 0o600))
			in, err := connect(t.Context(), file, "", tc.mode)
			if err != nil {
				if !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%v, want %q in it", err, tc.want)
				}
				return
			}
			if in.name() != tc.want || in.namespace != "n" {
				t.Errorf("pods are made by %s in namespace %s, want %s", in.name(), in.namespace, tc.want)
			}
		})
	}
}
