package operate

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
)

// TestBackends: doctor reports the missing requirements of the backends that the
// settings name, and only of these.
func TestBackends(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("OPEN-SANDBOX-API-KEY") != "right" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`{"items":[]}`))
	}))
	defer server.Close()
	dir := t.TempDir()
	key, config := filepath.Join(dir, "key"), filepath.Join(dir, "config")
	write := func(file, text string) {
		t.Helper()
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write(config, `{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}]}`)
	env := map[string]string{}
	a := &app.App{Getenv: func(name string) string { return env[name] }}
	if all := append(checkPods(t.Context(), a), checkService(t.Context(), a)...); len(all) > 0 {
		t.Errorf("without settings: %+v", all)
	}
	expect := func(all []finding, ok bool, words ...string) {
		t.Helper()
		if len(all) != 1 || all[0].OK != ok {
			t.Errorf("%+v, want one that is ok: %t", all, ok)
			return
		}
		for _, w := range words {
			if !strings.Contains(all[0].Check+": "+all[0].Found+"; "+all[0].Remedy, w) {
				t.Errorf("%+v, want %q in it", all[0], w)
			}
		}
	}
	env["RATH_SANDBOX_KUBERNETES_IMAGE"], env["RATH_SANDBOX_KUBERNETES_CONFIG"] = "debian", config
	expect(checkPods(t.Context(), a), false, "RATH_SANDBOX_KUBERNETES_NODE_IMAGE")
	env["RATH_SANDBOX_KUBERNETES_NODE_IMAGE"] = "rath"
	expect(checkPods(t.Context(), a), false, "kubernetes: nodes with these settings do not start", "127.0.0.1:1", "check the kubeconfig")
	env["RATH_SANDBOX_KUBERNETES_MODE"] = "clam"
	expect(checkPods(t.Context(), a), false, `"clam"`, "RATH_SANDBOX_KUBERNETES_MODE", "pod", "claim")
	if all := checkPods(t.Context(), a); strings.Contains(all[0].Remedy, "kubeconfig") {
		t.Errorf("%+v: the kubeconfig is right", all)
	}
	a.Config.ServiceURL.Value = server.URL + "/v1"
	expect(checkService(t.Context(), a), false, "no image", "RATH_SANDBOX_OPENSANDBOX_IMAGE")
	a.Config.ServiceURL.Value, a.Config.ServiceKey.Value = server.URL+"/v1", key
	a.Config.ServiceImage.Value = "debian@sha256:" + strings.Repeat("0", 64)
	write(key, "wrong")
	expect(checkService(t.Context(), a), false, "opensandbox: nodes with these settings do not start", "401", "put a valid key of the server into "+key)
	write(key, "right")
	expect(checkService(t.Context(), a), true, "opensandbox: offered", "accepts the key")
}

// TestModelAtAzure: doctor prints which server and key of the environment are used, and
// never the key.
func TestModelAtAzure(t *testing.T) {
	env := map[string]string{"AZURE_OPENAI_ENDPOINT": "https://r.openai.azure.com", "AZURE_OPENAI_API_KEY": "secret99"}
	a := &app.App{Getenv: func(name string) string { return env[name] }}
	if f := checkModel(t.Context(), a, false, false); !f.OK || f.Found != "https://r.openai.azure.com, key in AZURE_OPENAI_API_KEY, model not set" {
		t.Errorf("%+v", f)
	}
	delete(env, "AZURE_OPENAI_API_KEY")
	if f := checkModel(t.Context(), a, false, false); !strings.Contains(f.Found, "key in AZURE_OPENAI_API_KEY (missing)") {
		t.Errorf("%+v", f)
	}
}

// TestNodes: doctor distinguishes nodes that serve from those that do not, and is
// content only if some serve and none is silent.
func TestNodes(t *testing.T) {
	serves := messages.Node{Name: "a", Pools: []string{"default"}}
	dead, silent, relays, drains := serves, serves, messages.Node{Name: "server"}, serves
	dead.Dead, silent.Name, silent.Silent, drains.Draining = true, "b", 20_000, true
	for _, tt := range []struct {
		nodes       []messages.Node
		ok          bool
		found, says string
	}{
		{nil, false, "none", "start one"},
		{[]messages.Node{serves, dead, relays, serves}, true, "1 dead, 1 relay only, 2 serving (dead: a)", ""},
		{[]messages.Node{dead, relays, drains}, false, "1 dead, 1 draining, 1 relay only (dead: a)", "no node takes work"},
		{[]messages.Node{serves, silent}, false, "1 serving, 1 silent", "check b: it hangs"},
	} {
		f := checkNodes(tt.nodes)
		if f.OK != tt.ok || f.Found != tt.found || !strings.Contains(f.Remedy, tt.says) || f.OK != (f.Remedy == "") {
			t.Errorf("%+v, want %+v", f, tt)
		}
	}
}

// TestModelOfNodes: if the nodes are other processes, a model that is not set here does
// not matter to them.
func TestModelOfNodes(t *testing.T) {
	a := &app.App{Getenv: func(string) string { return "" }}
	if f := checkModel(t.Context(), a, false, true); !f.OK || f.Remedy != "" || strings.Contains(f.Found, "fail") {
		t.Errorf("%+v", f)
	}
}
