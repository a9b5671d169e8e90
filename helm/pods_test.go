package helm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// TestPodSecurity runs Kubernetes' own evaluator, and checks settings that "restricted"
// leaves open.
func TestPodSecurity(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	each(t, func(t *testing.T, all []object) {
		for _, w := range workloads(all) {
			for _, r := range evaluator.EvaluatePod(restricted, &w.meta, &w.spec) {
				if !r.Allowed {
					t.Errorf("%s: %s: %s", w.name, r.ForbiddenReason, r.ForbiddenDetail)
				}
			}
			// Nodes have one for the pods of sandboxes, and a role for no more than that.
			want := w.role == "node" && len(of[*rbacv1.Role](all)) > 0
			if token := w.spec.AutomountServiceAccountToken; token == nil || *token != want {
				t.Errorf("%s: pods get a token of Kubernetes: %v, want %t", w.name, token, want)
			}
			for _, c := range w.spec.Containers {
				if ro := c.SecurityContext.ReadOnlyRootFilesystem; ro == nil || !*ro {
					t.Errorf("%s: container %s: the root file system can be written", w.name, c.Name)
				}
			}
			for _, v := range w.spec.Volumes {
				if v.EmptyDir == nil && v.Secret == nil {
					t.Errorf("%s: volume %s is neither empty nor a secret", w.name, v.Name)
				}
			}
		}
		for _, s := range of[*corev1.ServiceAccount](all) {
			if s.AutomountServiceAccountToken == nil || *s.AutomountServiceAccountToken {
				t.Errorf("service account %s mounts its token", s.Name)
			}
		}
	})
}

// TestEvaluatorRefuses shows that the evaluator would notice.
func TestEvaluatorRefuses(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	w := members(render(t, minimal(t)))[0]
	w.spec.SecurityContext.SeccompProfile = nil
	result := policy.AggregateCheckResults(evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &w.meta, &w.spec))
	if result.Allowed || !strings.Contains(result.ForbiddenDetail(), "seccomp") {
		t.Errorf("without a seccomp profile: %+v", result)
	}
}

// TestProbes: Kubernetes restarts a pod only if its process is stuck. Liveness and startup
// probes use /livez; only the readiness probe depends on NATS.
func TestProbes(t *testing.T) {
	each(t, func(t *testing.T, all []object) {
		for _, w := range members(all) {
			c := w.spec.Containers[0]
			for name, p := range map[string]struct {
				probe *corev1.Probe
				path  string
			}{
				"startup": {c.StartupProbe, "/livez"}, "liveness": {c.LivenessProbe, "/livez"}, "readiness": {c.ReadinessProbe, "/readyz"},
			} {
				if p.probe == nil || p.probe.HTTPGet == nil || p.probe.HTTPGet.Path != p.path {
					t.Errorf("%s: %s probe %+v, want GET %s", w.name, name, p.probe, p.path)
					continue
				}
				port := portOf(t, c, p.probe.HTTPGet.Port.StrVal)
				if listen := flagOf(c, "health"); listen != fmt.Sprintf("0.0.0.0:%d", port.ContainerPort) {
					t.Errorf("%s: %s probe asks port %d, the program listens on %s", w.name, name, port.ContainerPort, listen)
				}
				// The endpoints answer within 3 s.
				if p.probe.TimeoutSeconds <= 3 {
					t.Errorf("%s: %s probe gives up after %d s", w.name, name, p.probe.TimeoutSeconds)
				}
			}
			// A fresh pod, which is not ready at the first question, loses no more.
			if c.ReadinessProbe.PeriodSeconds > 2 {
				t.Errorf("%s: readiness is asked every %d s", w.name, c.ReadinessProbe.PeriodSeconds)
			}
			if patience := c.LivenessProbe.PeriodSeconds * c.LivenessProbe.FailureThreshold; patience < 60 {
				t.Errorf("%s: it is restarted after %d s", w.name, patience)
			}
		}
	})
}

// TestGrace holds that no pod is killed while it still has time by its own
// account, with any drain.
func TestGrace(t *testing.T) {
	tests := []struct{ nodeDrain, routerDrain, preStop, margin, node, router int }{
		{120, 120, 5, 30, 150, 155},
		{1, 1, 0, 20, 21, 21},
		{300, 45, 15, 60, 360, 120},
		{86400, 600, 300, 600, 87000, 1500},
	}
	for _, tc := range tests {
		v := with(t, minimal(t), "node.drainSeconds", tc.nodeDrain)
		v = with(t, v, "router.drainSeconds", tc.routerDrain)
		v = with(t, v, "router.preStopSeconds", tc.preStop)
		v = with(t, v, "stopMarginSeconds", tc.margin)
		want := map[string]int{"node": tc.node, "router": tc.router}
		drain := map[string]int{"node": tc.nodeDrain, "router": tc.routerDrain}
		pre := map[string]int{"node": 0, "router": tc.preStop}
		for _, w := range members(render(t, v)) {
			if got := int(*w.spec.TerminationGracePeriodSeconds); got != want[w.role] {
				t.Errorf("%+v: %s gets %d s, want %d", tc, w.role, got, want[w.role])
			}
			c := w.spec.Containers[0]
			if got, err := time.ParseDuration(flagOf(c, "drain")); err != nil || got != time.Duration(drain[w.role])*time.Second {
				t.Errorf("%+v: %s drains for %v, %v", tc, w.role, got, err)
			}
			sleep := 0
			if c.Lifecycle != nil {
				sleep = int(c.Lifecycle.PreStop.Sleep.Seconds)
			}
			if sleep != pre[w.role] {
				t.Errorf("%+v: %s sleeps %d s before it stops", tc, w.role, sleep)
			}
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	for limit, want := range map[string]string{"2Gi": "1536MiB", "512Mi": "384MiB", "1500M": "", "1.5Gi": "", "": ""} {
		v := with(t, minimal(t), "node.resources.limits.memory", limit)
		if limit == "" {
			v = with(t, minimal(t), "node.resources.limits", nil)
		}
		for _, w := range members(render(t, v)) {
			if w.role != "node" {
				continue
			}
			got := ""
			for _, e := range w.spec.Containers[0].Env {
				if e.Name == "GOMEMLIMIT" {
					got = e.Value
				}
			}
			if got != want {
				t.Errorf("limit %q: GOMEMLIMIT %q, want %q", limit, got, want)
			}
		}
	}
}

// TestVolumes: each mount has its volume, written files are on a volume, and secrets are
// mounted where the flags expect them.
func TestVolumes(t *testing.T) {
	each(t, func(t *testing.T, all []object) {
		for _, w := range workloads(all) {
			var have []string
			for _, v := range w.spec.Volumes {
				have = append(have, v.Name)
			}
			for _, s := range of[*appsv1.StatefulSet](all) {
				for _, c := range s.Spec.VolumeClaimTemplates {
					if s.Name == w.name {
						have = append(have, c.Name)
					}
				}
			}
			slices.Sort(have)
			if len(slices.Compact(slices.Clone(have))) != len(have) {
				t.Errorf("%s: volumes %v", w.name, have)
			}
			c := w.spec.Containers[0]
			var mounts []string
			for _, m := range c.VolumeMounts {
				mounts = append(mounts, m.MountPath)
				if !slices.Contains(have, m.Name) {
					t.Errorf("%s: mount %s has no volume", w.name, m.Name)
				}
			}
			if len(mounts) != len(have) {
				t.Errorf("%s: volumes %v, mounts %v", w.name, have, mounts)
			}
			for _, f := range []string{"creds", "ca", "gossip-key-file", "store"} {
				file := flagOf(c, f)
				if file != "" && !slices.ContainsFunc(mounts, func(m string) bool { return strings.HasPrefix(file, m+"/") }) {
					t.Errorf("%s: -%s=%s is on no volume: %v", w.name, f, file, mounts)
				}
			}
		}
	})
}

// flagOf is the value of a flag of a container's program.
func flagOf(c corev1.Container, name string) string {
	for _, a := range c.Args {
		if v, ok := strings.CutPrefix(a, "-"+name+"="); ok {
			return v
		}
	}
	return ""
}

// portOf is the port of a container with a name, or a number.
func portOf(t testing.TB, c corev1.Container, name string) corev1.ContainerPort {
	t.Helper()
	for _, p := range c.Ports {
		if p.Name == name || strconv.Itoa(int(p.ContainerPort)) == name {
			return p
		}
	}
	t.Errorf("container %s has no port %q", c.Name, name)
	return corev1.ContainerPort{}
}
