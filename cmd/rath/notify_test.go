package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// TestDevTargets: the nodes of "rath dev" send notifications by the list of --targets. Lists
// of runs do not show them, and their steps show why attempts fail.
func TestDevTargets(t *testing.T) {
	got := make(chan string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		must.Report(t, err)
		got <- string(body)
	}))
	defer server.Close()
	dir := t.TempDir()
	t.Chdir(dir)
	must.Do(t, os.WriteFile("up", []byte(server.URL), 0o600))
	must.Do(t, os.WriteFile("down", []byte("http://127.0.0.1:"+strconv.Itoa(natstest.FreePort(t))), 0o600))
	must.Do(t, os.WriteFile("targets.yaml", []byte(`
link: https://rath.example.com
targets:
  up: {form: slack, url: file:up, private: true}
  down: {form: slack, url: file:down, private: true}
rules:
  - {on: [failed], to: up}
  - {on: [failed], to: down}
`), 0o600))
	for _, nodes := range []string{"0", "2"} {
		args := []string{"dev", "--port", strconv.Itoa(natstest.FreePort(t)), "--http", "", "--store", filepath.Join(dir, nodes), "--targets", "targets.yaml"}
		if nodes != "0" {
			args = append(args, "--nodes", nodes)
		}
		dev := startCommand(t, dir, args...)
		waitFor(t, func() bool { return strings.Contains(dev.said(), "try  ") })
		if strings.Contains(dev.said(), "rath-notify") {
			t.Errorf("rath-notify is on offer to people:\n%s", dev.said())
		}
		store := " --store " + nodes
		command(t, "rath submit agent --id broken -m hello --model echo --tools none --wait"+store, dir)
		if want := fmt.Sprintf("{\"text\":\"<https://rath.example.com/t/default/runs/%s|Run %s of agent failed>\"}\n", "broken", "broken"); <-got != want {
			t.Errorf("the target got something else than %s", want)
		}
		if said := command(t, "rath ps"+store, dir); strings.Contains(said, "rath-notify") || !strings.Contains(said, "broken") {
			t.Errorf("rath ps:\n%s", said)
		}
		waitFor(t, func() bool {
			said := command(t, "rath ps --workflow rath-notify --state waiting --format jsonl"+store, dir)
			_, id, _ := strings.Cut(said, `"run":"`)
			id, _, _ = strings.Cut(id, `"`)
			return id != "" && strings.Contains(command(t, "rath show --steps "+id+store, dir), "it refused the connection")
		})
		if code := dev.interrupt(); code != 0 {
			t.Errorf("rath dev ended with %d:\n%s", code, dev.said())
		}
	}
}
