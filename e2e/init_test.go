//go:build e2e && linux

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm/scripted"
)

// modelServer speaks the OpenAI protocol and answers from a script.
func modelServer(t *testing.T, name string, script []byte) *httptest.Server {
	t.Helper()
	s := must.Get(scripted.Parse(name, script))(t)
	m := must.Get(scripted.New(s, nil))(t)
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	return srv
}

// without returns an environment without variables that name a model or a server.
func without(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return strings.HasPrefix(v, "OPENAI_") || strings.HasPrefix(v, "RATH_") || strings.HasPrefix(v, "NATS_")
	})
}

// TestInit makes a module in an empty directory outside of the repository,
// tests and builds it without a network, starts its node, and sends a task to
// its workflow with a plain NATS client.
func TestInit(t *testing.T) {
	repo, err := filepath.Abs("..")
	must.Do(t, err)
	d := newDesk(t)
	d.rath("init", "review", "--replace", repo).want(t, 0, "review/go.mod", "review/workflow.go", "review/workflow_test.go",
		"review/main.go", "review/Dockerfile", "go test ./...", "go run .")
	dir := filepath.Join(d.dir, "review")

	// The module cache is the only source from here on.
	env := append(without(os.Environ()), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOWORK=off", "GOPROXY=off")
	command(t, dir, env, "go", "vet", "./...")
	if out := command(t, dir, env, "go", "test", "-vet=off", "-v", "./..."); strings.Count(out, "--- PASS: ") < 3 || strings.Contains(out, "--- SKIP") {
		t.Errorf("the module's tests:\n%s", out)
	}
	command(t, dir, env, "go", "build", "-o", "node", ".")

	script, err := os.ReadFile(filepath.Join(dir, "testdata", "model.txtar"))
	must.Do(t, err)
	model := modelServer(t, "model.txtar", script)
	cmd := exec.Command(filepath.Join(dir, "node"), "-port", "-1")
	node := (&desk{t: t, dir: dir, env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "OPENAI_BASE_URL=" + model.URL + "/v1", "OPENAI_DEFAULT_MODEL=m",
	}}).begin(cmd)
	up := regexp.MustCompile(`"nats":"(nats://127\.0\.0\.1:[0-9]+)"`)
	node.until("address", func() bool { return up.MatchString(node.stderr.String()) })
	url := up.FindStringSubmatch(node.stderr.String())[1]

	nc, err := nats.Connect(url)
	must.Do(t, err)
	defer nc.Close()
	results, err := nc.SubscribeSync("rath.run.default.first.result")
	must.Do(t, err)
	must.Do(t, nc.Flush())
	if ack := request(t, nc, "rath.task.default.anonymous.review", `{"id":"first","input":"tides"}`); !strings.Contains(ack, `"stream":"TASKS"`) {
		t.Fatalf("submit: %s", ack)
	}
	m, err := results.NextMsg(20 * time.Second)
	if err != nil {
		t.Fatalf("no result: %v\n%s", err, node.stderr.String())
	}
	var r struct{ Run, State, Workflow, Session string }
	if err := json.Unmarshal(m.Data, &r); err != nil || r.Run != "first" || r.State != "succeeded" || r.Workflow != "review" {
		t.Fatalf("the result is %s, %v", m.Data, err)
	}

	// The command line finds the node in its directory.
	(&desk{t: t, bin: d.bin, dir: dir, env: d.env}).rath("show", "@last", "--tree").want(t, 0, "The moon pulls the sea twice a day.", "ADOPTED")

	node.signal(syscall.SIGTERM)
	if o := node.wait(); o.code != 0 {
		t.Errorf("the node ended with %d: %s", o.code, o.stderr)
	}
}

// TestInitTidy: go.mod and go.sum equal the result of go mod tidy. It also reads the tests
// of dependencies, which this environment's module proxy has.
func TestInitTidy(t *testing.T) {
	repo := must.Get(filepath.Abs(".."))(t)
	d := newDesk(t)
	d.rath("init", "review", "--replace", repo).want(t, 0)
	dir := filepath.Join(d.dir, "review")
	env := append(without(os.Environ()), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOWORK=off")
	command(t, dir, env, "go", "mod", "tidy")
	before := must.Get(os.ReadFile(filepath.Join(dir, "go.mod")))(t)
	if !bytes.Contains(before, fmt.Appendf(nil, "replace github.com/rathcluster/rath => %s", repo)) {
		t.Errorf("tidy removed the checkout:\n%s", before)
	}
	command(t, dir, env, "go", "build", "./...")
}

// TestInitRefuses overwrites no existing file.
func TestInitRefuses(t *testing.T) {
	d := newDesk(t)
	d.rath("init", "mine", "--replace", "..").want(t, 3, "no go.mod", "--replace")
	must.Do(t, os.Mkdir(filepath.Join(d.dir, "mine"), 0o755))
	d.file("mine/workflow.go", "package mine\n")
	repo := must.Get(filepath.Abs(".."))(t)
	d.rath("init", "mine", "--replace", repo).want(t, 4, "mine holds files already", "new directory")
	if data, err := os.ReadFile(filepath.Join(d.dir, "mine", "workflow.go")); err != nil || string(data) != "package mine\n" {
		t.Errorf("the file is now %q, %v", data, err)
	}
}
