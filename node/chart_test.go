package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"gopkg.in/yaml.v3"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/cluster"
	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/natsbus"
)

// manifest is what these tests read of the objects that the chart renders.
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

// manifests reads what the chart renders to for one of its test cases; the
// chart's own tests hold that it still does.
func manifests(t *testing.T, name string) []manifest {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "helm", "testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
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

// charted reads the flags that the chart gives a node, as the node does; files
// and variables of the pod are replaced by some of this test.
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
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(cluster.NewKey().Text()+"\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		args = append(args, a)
	}
	var said bytes.Buffer
	o, err := options(args, func(string) string { return "" }, &said, role)
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, said.Bytes())
	}
	return o
}

// TestChartFlags holds that nodes and routers know the flags of their pods, and
// that they are given the time to stop that they take.
func TestChartFlags(t *testing.T) {
	for _, name := range []string{"minimal", "full", "user"} {
		all := manifests(t, name)
		want := RouteHere
		if slices.ContainsFunc(all, func(m manifest) bool { return m.Kind == "Deployment" }) {
			want = RouteElsewhere
		}
		for _, m := range all {
			if m.Kind != "StatefulSet" && m.Kind != "Deployment" {
				continue
			}
			o := charted(t, m)
			if router := o.Routing == RouteOnly; router != (o.HTTP != "") {
				t.Errorf("%s: %s: HTTP at %q", name, m.Kind, o.HTTP)
			}
			if m.Kind == "StatefulSet" && o.Routing != want {
				t.Errorf("%s: nodes route %q, want %q", name, o.Routing, want)
			}
			if o.Health == "" || o.NATS == "" || o.Gossip == nil || len(o.Gossip.Join) != 1 || o.Name == "" || o.Pool == "" {
				t.Errorf("%s: %s: %+v", name, m.Kind, o)
			}
			for _, p := range m.Spec.Template.Spec.Containers[0].Ports {
				if strings.HasPrefix(p.Name, "gossip-") && p.Port != cluster.DefaultPort {
					t.Errorf("%s: %s: port %s is %d, a node listens on %d", name, m.Kind, p.Name, p.Port, cluster.DefaultPort)
				}
			}
			// After the drain: snapshots, the last of the lineage, gossip, the
			// connection, the endpoints.
			least := o.Drain + actors.LastSave + relayLast + leaveLast + natsbus.DefaultDrainTimeout + healthStop
			if grace := time.Duration(m.Spec.Template.Spec.Grace) * time.Second; grace < least {
				t.Errorf("%s: %s is killed after %v, it may take %v", name, m.Kind, grace, least)
			}
		}
	}
}

// TestChartConsumers starts a node as the chart does and holds that the
// consumers which KEDA is told to watch are those that the node makes: a wrong
// name would scale nothing and say nothing.
func TestChartConsumers(t *testing.T) {
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
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
	if len(triggers) < 3 {
		t.Fatalf("the chart has the triggers %v", triggers)
	}
	o.NATS, o.CredsFile, o.RootCAs, o.Monitor = srv.URL(), "", "", nil
	o.User, o.Password = srv.Node()
	o.Level, o.Replicas, o.Health, o.Gossip, o.Drain = "lazy", 1, "127.0.0.1:0", nil, time.Second
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	begin(t, o).started(t)

	user, password := srv.Operator()
	nc, err := nats.Connect(srv.URL(), nats.UserInfo(user, password))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for _, trigger := range triggers {
		for {
			_, err := js.Consumer(ctx, trigger["stream"], trigger["consumer"])
			if err == nil {
				break
			}
			if !errors.Is(err, jetstream.ErrConsumerNotFound) || ctx.Err() != nil {
				t.Fatalf("stream %s has no consumer %s: %v", trigger["stream"], trigger["consumer"], err)
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}
