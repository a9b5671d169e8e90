package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// exactServer is a server whose users have exactly the permissions listed for them.
func exactServer(t *testing.T) *natsserver.Server {
	t.Helper()
	srv := must.Get(natsserver.Start(t.Context(), &natsserver.Options{
		StoreDir: t.TempDir(), Port: -1, Lazy: true, MaxStore: 64 << 30,
		Grant: func(r permission.Role, at permission.Place) *permission.Grant {
			at.Partitions = streams.DefaultPartitions
			return new(permission.GrantOf(r, at))
		},
	}))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		must.Report(t, srv.Shutdown(ctx))
	})
	return srv
}

// TestProvision plays an operator's work with a new server, and with settings that
// would lose data.
func TestProvision(t *testing.T) {
	srv := exactServer(t)
	_, password := srv.Operator()
	home := t.TempDir()
	run := func(user, password string, args ...string) (string, int) {
		var out, errs bytes.Buffer
		args = append([]string{"rath", "cluster", "provision", "--server", srv.URL()}, args...)
		code := execute(args, strings.NewReader(""), &out, &errs, func(name string) string {
			return map[string]string{"HOME": home, "NATS_USER": user, "NATS_PASSWORD": password}[name]
		})
		return strings.ReplaceAll(out.String()+errs.String(), srv.URL(), "URL"), code
	}
	if text, code := run(srv.Node()); code != app.ExitRefused || !strings.Contains(text, "no permission to publish to $JS.API.STREAM.CREATE") {
		t.Errorf("with the credentials of a node: exit %d, %s", code, text)
	}
	operator := func(args ...string) (string, int) { return run("operator", password, args...) }

	var story strings.Builder
	for _, step := range []struct {
		args string
		code int
	}{
		{"--replicas 1 --partitions 2 --dry-run", app.ExitPartial},
		{"--replicas 1 --partitions 2", app.ExitOK},
		{"--wait 1s", app.ExitOK},
		{"--keep-results 48h --dry-run", app.ExitPartial},
		{"--partitions 3", app.ExitRefused},
		{"--replicas 3 --dry-run", app.ExitRefused},
		{"--store-bytes 1potato", app.ExitUsage},
	} {
		text, code := operator(strings.Fields(step.args)...)
		if code != step.code {
			t.Errorf("%s: exit %d, want %d", step.args, code, step.code)
		}
		story.WriteString("$ rath cluster provision " + step.args + "\n" + text + "\n")
	}
	const name = "testdata/provision.txt"
	if *update {
		must.Do(t, os.WriteFile(name, []byte(story.String()), 0o644))
	}
	want := must.Get(os.ReadFile(name))(t)
	if got := story.String(); got != string(want) {
		t.Errorf("%s differs (go test ./cmd/rath -update rewrites it):\n%s", name, firstDifference(got, string(want)))
	}

	text, code := operator("--format", "json", "-q")
	var plan streams.Plan
	if err := json.Unmarshal([]byte(text), &plan); err != nil || code != app.ExitOK || plan.Partitions != 2 || len(plan.Changes) != 14 || !plan.Changes[0].Done {
		t.Errorf("exit %d, %v: %s", code, err, text)
	}
}

// TestProvisionWaits starts before the server does.
func TestProvisionWaits(t *testing.T) {
	port := natstest.FreePort(t)
	o := &natsserver.Options{StoreDir: t.TempDir(), Port: port, Lazy: true, MaxStore: 64 << 30, Open: true}
	address := "nats://127.0.0.1:" + strconv.Itoa(port)
	run := func(wait string) (string, int) {
		var out, errs bytes.Buffer
		code := execute([]string{"rath", "cluster", "provision", "--server", address, "--replicas", "1", "--wait", wait}, strings.NewReader(""), &out, &errs, func(string) string { return "" })
		return out.String() + errs.String(), code
	}
	if text, code := run("0s"); code != app.ExitUnavailable {
		t.Fatalf("exit %d: %s", code, text)
	}
	type result struct {
		text string
		code int
	}
	done := make(chan result, 1)
	go func() {
		text, code := run("1m")
		done <- result{text, code}
	}()
	srv := must.Get(natsserver.Start(t.Context(), o))(t)
	r := <-done
	if r.code != app.ExitOK || !strings.Contains(r.text, "created") {
		t.Errorf("exit %d: %s", r.code, r.text)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	must.Report(t, srv.Shutdown(ctx))
}

// TestChartProvision runs the job of the chart, with the server and the secret of this
// test in place of its own: the command accepts the job's flags.
func TestChartProvision(t *testing.T) {
	for _, name := range []string{"full", "user"} {
		data := must.Get(os.ReadFile(filepath.Join("..", "..", "helm", "testdata", name+".yaml")))(t)
		var job struct {
			Kind string
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct{ Command, Args []string }
					}
				}
			}
		}
		for dec := yaml.NewDecoder(bytes.NewReader(data)); job.Kind != "Job"; {
			if err := dec.Decode(&job); err != nil {
				t.Fatalf("%s: no job: %v", name, err)
			}
		}
		c := job.Spec.Template.Spec.Containers[0]
		srv := exactServer(t)
		user, password := srv.Operator()
		args := slices.Clone(c.Command)
		for _, a := range c.Args {
			flag, _, _ := strings.Cut(a, "=")
			switch flag {
			case "--server":
				a = flag + "=" + srv.URL()
			case "--replicas":
				a = flag + "=1"
			case "--monitor", "--creds", "--placement-cluster", "--placement-tag":
				continue // of servers and files that are not here; they parse below
			}
			args = append(args, a)
		}
		var out, errs bytes.Buffer
		env := map[string]string{"NATS_USER": user, "NATS_PASSWORD": password, "RATH_STORE": "/tmp/none", "HOME": t.TempDir()}
		if code := execute(args, strings.NewReader(""), &out, &errs, func(name string) string { return env[name] }); code != app.ExitOK || !strings.Contains(out.String(), "created") {
			t.Errorf("%s: %q: exit %d\n%s%s", name, args, code, out.String(), errs.String())
		}
		out.Reset()
		if code := execute(append(slices.Concat(c.Command, c.Args), "--print-permissions"), strings.NewReader(""), &out, &errs, func(string) string { return "" }); code != app.ExitOK {
			t.Errorf("%s: %q: exit %d\n%s", name, c.Args, code, errs.String())
		}
	}
}
