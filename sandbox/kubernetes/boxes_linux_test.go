package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// TestBoxes follows a session through two epochs: each has a pod, which is removed with its
// secret and its makers.
func TestBoxes(t *testing.T) {
	for mode, kinds := range map[string][]string{ModePod: {"pods", "secrets"}, ModeClaim: {"pods", claimPlural, templatePlural, poolPlural, "secrets"}} {
		t.Run(mode, func(t *testing.T) {
			s := newAPIServer(t, nil)
			s.claims = mode == ModeClaim
			o := s.options(t)
			o.RuntimeClass, o.PullSecrets, o.User = "kata", []string{"registry", "mirror"}, 1000
			o.Holder = "node 0 of " + strings.Repeat("a", 80)
			b := New(o)
			dir := t.TempDir()
			first := must.Get(b.Open(t.Context(), sandbox.Spec{Dir: dir, Owner: "acme/s1", Epoch: 1}))(t)
			if e, err := first.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo from $NAME > out"}, Env: map[string]string{"NAME": b.Name()}}); err != nil || e.Code != 0 {
				t.Errorf("%+v, %v", e, err)
			}
			if text, err := os.ReadFile(filepath.Join(dir, "out")); err != nil || string(text) != "from kubernetes\n" {
				t.Errorf("out: %q, %v", text, err)
			}
			limits := sandbox.Limits{CPU: 0.005, Memory: 256 << 20, Disk: 1 << 30, PIDs: 32}
			second := must.Get(b.Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), Owner: "acme/s1", Epoch: 2, Limits: limits, Image: anotherImage}))(t)
			if i := second.Info(); i.Image != anotherImage || i.Isolation != sandbox.IsolationContainer || i.Limits != limits {
				t.Errorf("%+v", i)
			}
			// The older pod is removed with the newer epoch.
			if _, err := first.Exec(t.Context(), sandbox.Cmd{Argv: []string{"true"}}); !errors.Is(err, sandbox.ErrLost) {
				t.Errorf("a command of the older epoch: %v", err)
			}
			left := s.left()
			if len(left) != len(kinds) {
				t.Errorf("there are %v, want those of one pod: %v", left, kinds)
			}
			name := strings.TrimPrefix(left[0], "pods/")
			for i, k := range slices.Sorted(slices.Values(kinds)) {
				if left[i] != k+"/"+name {
					t.Errorf("there are %v, want %s/%s", left, k, name)
				}
			}
			s.mu.Lock()
			pod, secret := s.objects["pods/"+name], s.objects["secrets/"+name]
			s.mu.Unlock()
			spec, meta := pod["spec"].(object), pod["metadata"].(object)
			commands := spec["containers"].([]any)[0].(object)
			labels := meta["labels"].(object)
			for what, is := range map[string][2]any{
				"runtime class":   {spec["runtimeClassName"], "kata"},
				"pull secrets":    {fmt.Sprint(spec["imagePullSecrets"]), "[map[name:registry] map[name:mirror]]"},
				"user":            {spec["securityContext"].(object)["runAsUser"], 1000.0},
				"image":           {commands["image"], anotherImage},
				"limit of CPU":    {commands["resources"].(object)["limits"].(object)["cpu"], "5m"},
				"asked CPU":       {commands["resources"].(object)["requests"].(object)["cpu"], "5m"},
				"label of holder": {labels[labelNode], "node-0-of-" + strings.Repeat("a", 53)},
				"label of epoch":  {labels[labelEpoch], "2"},
				"keys go with it": {secret["metadata"].(object)["ownerReferences"].([]any)[0].(object)["kind"], map[string]string{ModePod: "Pod", ModeClaim: claimKind}[mode]},
				"token of a pod":  {spec["automountServiceAccountToken"], false},
			} {
				if is[0] != is[1] {
					t.Errorf("%s: %v, want %v", what, is[0], is[1])
				}
			}
			must.Report(t, errors.Join(first.Close(), second.Close()))
			if left := s.left(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestImages: a sandbox's image is pinned.
func TestImages(t *testing.T) {
	s := newAPIServer(t, nil)
	s.begin = func(p *fakePod) { p.image = "containerd://" + pinned }
	o := s.options(t)
	o.Image = "tools:latest"
	b := New(o)
	for asked, want := range map[string]string{"": pinned, "tools:latest": pinned, anotherImage: anotherImage} {
		if i, err := b.Resolve(t.Context(), sandbox.Spec{Image: asked}); err != nil || i.Image != want {
			t.Errorf("%q: %+v, %v, want %s", asked, i, err, want)
		}
	}
	_, err := b.Resolve(t.Context(), sandbox.Spec{Image: "others:v1"})
	if says(t, "an image by name", err, `the image "others:v1" can be moved`, "name it by digest, as NAME@sha256:DIGEST"); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Error(err)
	}
	_, err = b.Resolve(t.Context(), sandbox.Spec{Network: sandbox.NetworkOpen})
	if !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("an open network: %v", err)
	}
	// Failures before a pod is created.
	for name, spec := range map[string]sandbox.Spec{
		"no directory": {Dir: filepath.Join(t.TempDir(), "none")},
		"no proxy":     {Dir: t.TempDir(), Network: "list:example.org"},
		"moving image": {Dir: t.TempDir(), Image: "others:v1"},
	} {
		if x, err := b.Open(t.Context(), spec); err == nil {
			t.Errorf("%s: opened %+v", name, x.Info())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Open(ctx, sandbox.Spec{Dir: t.TempDir()}); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that is gone: %v", err)
	}
	if left := s.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// leave adds pods that others left to the server: one that ended, one that never ran, one
// that may still start, one of an older and one of a newer epoch, one that is being
// deleted, and one that is not a sandbox.
func (s *apiServer) leave(claims bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := `{"phase":"Running","podIP":"127.0.0.1","containerStatuses":[{"name":"sandbox","state":{"running":{}}}]}`
	add := func(kind, name, status string, age time.Duration, labels object) {
		if labels == nil {
			labels = object{}
		}
		labels[labelName] = nameValue
		s.add(kind, name, object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name, "labels": labels}})
		s.objects[kind+"/"+name]["metadata"].(object)["creationTimestamp"] = time.Now().Add(-age).UTC().Format(time.RFC3339)
		s.say(kind+"/"+name, status)
	}
	epoch := func(n string) object { return object{labelOwner: ownerLabel("acme/s1"), labelEpoch: n} }
	for _, p := range []struct {
		name, status string
		age          time.Duration
		labels       object
	}{
		{"ended", `{"phase":"Succeeded"}`, 0, nil},
		{"failed", `{"phase":"Failed"}`, 0, epoch("9")},
		{"never-ran", `{"phase":"Pending"}`, time.Hour, nil},
		{"may-run", `{"phase":"Pending"}`, time.Second, nil},
		{"older", running, time.Hour, epoch("1")},
		{"newer", running, time.Hour, epoch("2")},
		{"odd-epoch", running, time.Hour, epoch("x")},
		{"deleted", `{"phase":"Failed"}`, 0, nil},
	} {
		add("pods", p.name, p.status, p.age, p.labels)
		if claims && p.name != "newer" { // created directly
			add(claimPlural, p.name, `{}`, p.age, p.labels)
		}
	}
	if claims {
		add(claimPlural, "without-pod", `{}`, time.Hour, nil)
	}
	s.objects["pods/deleted"]["metadata"].(object)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	s.add("pods", "other", object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "other", "labels": object{}}})
}

// TestFaultsSweep: leftover pods are removed, and pods that others hold are not.
func TestFaultsSweep(t *testing.T) {
	for name, tc := range map[string]struct {
		claims  bool
		faults  []fault
		removed int
		want    []string
		gone    []string
	}{
		"pods":          {removed: 4, gone: []string{"ended", "failed", "never-ran", "older"}},
		"claims":        {claims: true, removed: 5, gone: []string{"ended", "failed", "never-ran", "older", "without-pod"}},
		"one stays":     {faults: []fault{{at: "delete pods", code: 500, message: etcdSlow, times: 1}}, removed: 3, want: []string{"kubernetes: sweep: delete pod ended", etcdSlow}, gone: []string{"failed", "never-ran", "older"}},
		"gone already":  {faults: []fault{{at: "delete pods", code: 404, message: "not found", carried: true}}, removed: 4, gone: []string{"ended", "failed", "never-ran", "older"}},
		"no list":       {faults: []fault{{at: "list pods", code: 403, message: noRole}}, want: []string{"kubernetes: sweep: list pods", "is forbidden"}},
		"no claims":     {claims: true, faults: []fault{{at: "list sandboxclaims", code: 403, message: noClaims}}, want: []string{"kubernetes: sweep: list pods", "is forbidden"}},
		"claims alone":  {claims: true, faults: []fault{{at: "list pods", code: 500, message: etcdSlow}}, want: []string{"kubernetes: sweep: list pods", etcdSlow}},
		"no server":     {faults: []fault{{at: "discover", code: 401, message: "Unauthorized"}}, want: []string{"kubernetes: sweep: ask for /apis/", "the server has asked for the client to provide credentials"}},
		"no end of one": {claims: true, faults: []fault{{at: "delete sandboxclaims", code: 403, message: noClaims, times: 1}}, removed: 4, want: []string{"kubernetes: sweep: delete pod ended"}, gone: []string{"failed", "never-ran", "older", "without-pod"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t, nil)
			s.claims = tc.claims
			s.leave(tc.claims)
			before := map[string]bool{}
			for _, k := range s.left() {
				before[k[strings.Index(k, "/")+1:]] = true
			}
			s.set(tc.faults...)
			n, err := New(s.options(t)).(sandbox.Sweeper).Sweep(t.Context())
			if says(t, "Sweep", err, tc.want...); tc.want == nil && err != nil || n != tc.removed {
				t.Errorf("%d were removed, want %d: %v", n, tc.removed, err)
			}
			for _, k := range s.left() {
				delete(before, k[strings.Index(k, "/")+1:])
			}
			gone := []string{}
			for k := range before {
				gone = append(gone, k)
			}
			slices.Sort(gone)
			if !slices.Equal(gone, append([]string{}, tc.gone...)) {
				t.Errorf("%v are gone, want %v", gone, tc.gone)
			}
		})
	}
}

// TestRun: a node removes leftover pods when it starts, logs the removed ones and the
// failures, and stops with its context.
func TestRun(t *testing.T) {
	s := newAPIServer(t, nil)
	s.leave(false)
	s.set(fault{at: "delete pods", code: 500, message: etcdSlow, times: 1})
	for _, want := range []string{"pods of sandboxes are left", "removed pods of sandboxes that were left"} {
		var log bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		o := s.options(t)
		o.Logger = slog.New(slog.NewTextHandler(writes(func(p []byte) { log.Write(p); cancel() }), nil))
		must.Report(t, New(o).(sandbox.Sweeper).Run(ctx))
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
			t.Errorf("the log is %q, want %q", got, want)
		}
	}
}

// writes is a writer function.
type writes func(p []byte)

func (w writes) Write(p []byte) (int, error) { w(p); return len(p), nil }
