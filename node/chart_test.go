package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/cluster"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// manifest holds the fields that these tests read of the chart's objects.
type manifest struct {
	Kind string
	Spec struct {
		Template struct {
			Spec struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []struct {
					Name  string
					Args  []string
					Ports []struct {
						Name string
						Port int `yaml:"containerPort"`
					}
				}
			}
		}
		Triggers []struct{ Metadata map[string]string }
	}
}

// manifests reads the rendered chart of one of its test cases; the chart's own tests
// check that it is up to date.
func manifests(t *testing.T, name string) []manifest {
	t.Helper()
	data := must.Get(os.ReadFile(filepath.Join("..", "helm", "testdata", name+".yaml")))(t)
	var all []manifest
	for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var m manifest
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
}

// charted parses the flags that the chart gives a node, as the node does; files and
// variables of the pod are replaced by the test's.
func charted(t *testing.T, m manifest) *Options {
	t.Helper()
	etc := t.TempDir()
	var args []string
	role := RouteHere
	if m.Kind == "Deployment" {
		role = RouteOnly
	}
	for _, a := range m.Spec.Template.Spec.Containers[0].Args {
		a = strings.NewReplacer("$(POD_NAME)", "prod-rath-node-0", "$(POD_IP)", "127.0.0.1", "/etc/rath", etc, "/var/lib/rath", t.TempDir()).Replace(a)
		if file, ok := strings.CutPrefix(a, "-gossip-key-file="); ok {
			must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(cluster.NewKey().Text()+"\n"), 0o600)))
		}
		args = append(args, a)
	}
	var said bytes.Buffer
	o, err := options(args, func(string) string { return "" }, &said, &Options{Fleet: Fleet{Routing: role}})
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, said.Bytes())
	}
	return o
}

// TestChartFlags checks that nodes and routers accept the flags of their pods, and that
// their pods get enough time to stop.
func TestChartFlags(t *testing.T) {
	for _, name := range []string{"minimal", "full", "user"} {
		all := manifests(t, name)
		want := RouteHere
		if slices.ContainsFunc(all, func(m manifest) bool { return m.Kind == "Deployment" }) {
			want = RouteElsewhere
		}
		for _, m := range all {
			if m.Kind != "StatefulSet" && m.Kind != "Deployment" || m.Spec.Template.Spec.Containers[0].Name == "toolbox" {
				continue
			}
			o := charted(t, m)
			if web := o.Fleet.Routing == RouteOnly && name == "full"; web != (o.HTTP.Web != "") || web && (o.HTTP.URL == "" || o.HTTP.Gateways == "" || o.HTTP.OIDC == "") {
				t.Errorf("%s: %s: HTTP is %+v", name, m.Kind, o.HTTP)
			}
			if m.Kind == "StatefulSet" && o.Fleet.Routing != want {
				t.Errorf("%s: nodes route %q, want %q", name, o.Fleet.Routing, want)
			}
			if o.HTTP.Health == "" || o.NATS.URL == "" || o.Fleet.Gossip == nil || len(o.Fleet.Gossip.Join) != 1 || o.Name == "" || o.Fleet.Pool == "" {
				t.Errorf("%s: %s: %+v", name, m.Kind, o)
			}
			for _, p := range m.Spec.Template.Spec.Containers[0].Ports {
				if strings.HasPrefix(p.Name, "gossip-") && p.Port != cluster.DefaultPort {
					t.Errorf("%s: %s: port %s is %d, a node listens on %d", name, m.Kind, p.Name, p.Port, cluster.DefaultPort)
				}
			}
			// After the drain: snapshots, the last of the lineage, gossip, the
			// connection, the endpoints.
			least := o.Drain + actors.LastSave + relayLast + leaveLast + conn.DefaultDrainTimeout + healthStop
			if grace := time.Duration(m.Spec.Template.Spec.Grace) * time.Second; grace < least {
				t.Errorf("%s: %s is killed after %v, it may take %v", name, m.Kind, grace, least)
			}
		}
	}
}

// TestChartScaling starts a node as the chart does, has 1,000 runs wait for its slots,
// and finds that number at the path that the chart gives to KEDA, and 0 after they have
// run: another path or value would scale nothing.
func TestChartScaling(t *testing.T) {
	const waiting = 1000
	srv := natstest.Start(t, &natsserver.Options{Port: -1, Lazy: true})
	var triggers []map[string]string
	var o *Options
	for _, m := range manifests(t, "full") {
		for _, trigger := range m.Spec.Triggers {
			triggers = append(triggers, trigger.Metadata)
		}
		if m.Kind == "StatefulSet" {
			o = charted(t, m)
		}
	}
	if len(triggers) != 1 {
		t.Fatalf("the chart has the triggers %v", triggers)
	}
	o.NATS.URL, o.NATS.CredsFile, o.SigningKey, o.NATS.Monitor = srv.URL(), "", "", nil
	o.NATS.User, o.NATS.Password = srv.Node()
	o.NATS.Level, o.NATS.Replicas, o.HTTP.Health, o.Fleet.Gossip, o.Drain = "lazy", 1, "127.0.0.1:0", nil, time.Second
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	o.Sandbox.Kubernetes.Image, o.Targets, o.Rules, o.Agents, o.Checks = "", "", "", "", "" // there is no API server, and no secret
	hold := make(chan struct{})
	o.Workflows = []flow.Registration{{Name: "holds", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			select {
			case <-hold:
				return s, nil
			case <-ctx.Done():
				return s, context.Cause(ctx)
			}
		})
	}}}
	n := begin(t, o).started(t)

	// As KEDA does, except for the name of the service.
	at := must.Get(url.Parse(triggers[0]["url"]))(t)
	at.Host = strings.TrimPrefix(n.HealthURL(), "http://")
	ctx, cancel := context.WithTimeout(t.Context(), 4*soon)
	defer cancel()
	runs := func() float64 {
		t.Helper()
		for {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
			must.Do(t, err)
			resp, err := http.DefaultClient.Do(req)
			must.Do(t, err)
			var body map[string]any
			err = errors.Join(json.NewDecoder(resp.Body).Decode(&body), resp.Body.Close())
			if resp.StatusCode == http.StatusServiceUnavailable {
				continue // not every partition has a relay yet; KEDA leaves the nodes as they are
			}
			value, ok := body[triggers[0]["valueLocation"]].(float64)
			if err != nil || resp.StatusCode != http.StatusOK || !ok {
				t.Fatalf("%s: %d, %s in %v, %v", at, resp.StatusCode, triggers[0]["valueLocation"], body, err)
			}
			return value
		}
	}
	until := func(want float64) {
		t.Helper()
		for got := runs(); got != want; got = runs() {
			if ctx.Err() != nil || got > waiting {
				t.Fatalf("%v runs wait, want %v", got, want)
			}
			time.Sleep(answerFresh)
		}
	}
	c := must.Get(n.ClientOf(t.Context(), session.DefaultTenant))(t)
	defer c.Close()
	submit := func(count int, id string) {
		t.Helper()
		for i := range count {
			must.Get(c.Submit(ctx, "holds", messages.Task{ID: run.ID(fmt.Sprintf("%s%d", id, i))}))(t)
		}
	}
	submit(o.Slots, "holds")
	for n.system.Free() > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if got := runs(); got != 0 {
		t.Errorf("%v runs wait while slots were free", got)
	}
	submit(waiting, "waits")
	until(waiting)
	close(hold)
	until(0)
}
