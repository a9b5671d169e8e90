package helm

import (
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestOperatorPods holds that all pods that act for an operator can be placed and are
// bounded, and that their secret is the operator's.
func TestOperatorPods(t *testing.T) {
	v := with(t, cases(t)["full"], "operator.nodeSelector", values{"kind": "tools"})
	v = with(t, with(t, v, "operator.podLabels", values{"team": "ops"}), "operator.podAnnotations", values{"example.com/mesh": "no"})
	var found []string
	for _, w := range workloads(render(t, v)) {
		if w.role != "" {
			continue
		}
		found = append(found, w.name)
		if w.spec.NodeSelector["kind"] != "tools" || len(w.spec.Tolerations) != 1 || w.meta.Labels["team"] != "ops" || w.meta.Annotations["example.com/mesh"] != "no" {
			t.Errorf("%s cannot be placed: %v %v %v %v", w.name, w.spec.NodeSelector, w.spec.Tolerations, w.meta.Labels, w.meta.Annotations)
		}
		operator := func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == "rath-operator" }
		if !slices.ContainsFunc(w.spec.Volumes, operator) {
			t.Errorf("%s has no credentials of an operator", w.name)
		}
	}
	if want := []string{"prod-fleet-doctor", "prod-fleet-provision", "prod-fleet-toolbox"}; !slices.Equal(slices.Sorted(slices.Values(found)), want) {
		t.Errorf("the pods are %v, want %v", found, want)
	}
}

// TestServerInPods holds that the command line finds the fleet in each pod.
func TestServerInPods(t *testing.T) {
	each(t, func(t *testing.T, all []object) {
		for _, w := range workloads(all) {
			env := map[string]string{}
			for _, e := range w.spec.Containers[0].Env {
				env[e.Name] = e.Value
			}
			if !strings.Contains(env["RATH_SERVER"], "://") || env["RATH_STORE"] != "/tmp/none" {
				t.Errorf("%s: RATH_SERVER %q, RATH_STORE %q", w.name, env["RATH_SERVER"], env["RATH_STORE"])
			}
			if file := env["RATH_CREDS"]; file != "" && !slices.ContainsFunc(w.spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(file, m.MountPath+"/") }) {
				t.Errorf("%s: RATH_CREDS %s is on no volume", w.name, file)
			}
		}
	})
}

// TestFailedJob: the job is retried only while servers do not answer, and its output is
// kept for a while.
func TestFailedJob(t *testing.T) {
	job := one[*batchv1.Job](t, render(t, cases(t)["full"]))
	if ttl := job.Spec.TTLSecondsAfterFinished; ttl == nil || *ttl < 3600 {
		t.Errorf("a failed job stays for %v s", ttl)
	}
	if job.Spec.PodFailurePolicy == nil {
		t.Fatal("each failure is tried again")
	}
	var ends []int32
	for _, r := range job.Spec.PodFailurePolicy.Rules {
		if r.Action == batchv1.PodFailurePolicyActionFailJob {
			ends = append(ends, r.OnExitCodes.Values...)
		}
	}
	// Exit codes as `rath help exit-codes` has them.
	if slices.Contains(ends, 5) || !slices.Contains(ends, 7) || !slices.Contains(ends, 2) {
		t.Errorf("the job ends at %v", ends)
	}
	if p := job.Spec.Template.Spec.Containers[0].TerminationMessagePolicy; p != corev1.TerminationMessageFallbackToLogsOnError {
		t.Errorf("what it said last is shown: %s", p)
	}
}

// TestNoTestPod: applying the objects without Helm starts no test.
func TestNoTestPod(t *testing.T) {
	if n := len(of[*corev1.Pod](render(t, with(t, minimal(t), "test.enabled", false)))); n != 0 {
		t.Errorf("%d pods", n)
	}
}

// TestBounds: each container has limits on its resources, and each directory a size limit.
func TestBounds(t *testing.T) {
	each(t, func(t *testing.T, all []object) {
		for _, w := range workloads(all) {
			limits := w.spec.Containers[0].Resources.Limits
			for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
				if q, ok := limits[r]; !ok || q.IsZero() {
					t.Errorf("%s has no limit of %s", w.name, r)
				}
			}
			for _, v := range w.spec.Volumes {
				if v.EmptyDir != nil && (v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.IsZero()) {
					t.Errorf("%s: volume %s has no limit", w.name, v.Name)
				}
			}
		}
	})
}

// TestExtras holds that volumes, sidecars and the like are where they belong.
func TestExtras(t *testing.T) {
	for _, role := range []string{"node", "router"} {
		v := with(t, minimal(t), role+".volumes", []any{values{"name": "models", "emptyDir": values{}}})
		v = with(t, v, role+".volumeMounts", []any{values{"name": "models", "mountPath": "/models"}})
		v = with(t, v, role+".initContainers", []any{values{"name": "fetch", "image": "fetch:1"}})
		v = with(t, v, role+".sidecars", []any{values{"name": "proxy", "image": "proxy:1"}})
		for _, w := range members(render(t, v)) {
			c := w.spec.Containers
			mounted := slices.ContainsFunc(c[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/models" })
			volume := slices.ContainsFunc(w.spec.Volumes, func(v corev1.Volume) bool { return v.Name == "models" })
			has := mounted && volume && len(c) == 2 && c[1].Name == "proxy" && len(w.spec.InitContainers) == 1
			if has != (w.role == role) || c[0].Name != w.role {
				t.Errorf("%s has what %s asked for: %v", w.name, role, has)
			}
		}
	}
}

// TestCommonMetadata holds that all objects and pods have the common labels and
// annotations.
func TestCommonMetadata(t *testing.T) {
	v := with(t, cases(t)["full"], "commonLabels", values{"team": "agents"})
	v = with(t, with(t, v, "commonAnnotations", values{"example.com/team": "agents"}), "metrics", values{"podMonitor": true, "alerts": true})
	all := render(t, v)
	for _, o := range all {
		if o.meta.GetLabels()["team"] != "agents" || o.meta.GetAnnotations()["example.com/team"] == "" {
			t.Errorf("%s %s has %v and %v", o.kind, o.meta.GetName(), o.meta.GetLabels(), o.meta.GetAnnotations())
		}
	}
	for _, w := range workloads(all) {
		if w.meta.Labels["team"] != "agents" || w.meta.Annotations["example.com/team"] == "" {
			t.Errorf("pods of %s have %v and %v", w.name, w.meta.Labels, w.meta.Annotations)
		}
	}
}

// TestEgress: pods can reach only public model servers, the cluster's name servers, NATS
// and the fleet.
func TestEgress(t *testing.T) {
	v := with(t, minimal(t), "networkPolicy.natsTo", []any{values{"namespaceSelector": values{"matchLabels": values{"a": "nats"}}}})
	for _, p := range policies(render(t, v)) {
		dns, nats, rest := p.Spec.Egress[1], p.Spec.Egress[2], p.Spec.Egress[3]
		if len(dns.To) == 0 || dns.Ports[0].Port.IntVal != 53 {
			t.Errorf("names of %+v", dns)
		}
		if len(nats.To) != 1 || nats.To[0].NamespaceSelector.MatchLabels["a"] != "nats" {
			t.Errorf("NATS at %+v", nats)
		}
		if block := rest.To[0].IPBlock; !slices.Contains(block.Except, "10.0.0.0/8") || !slices.Contains(block.Except, "169.254.0.0/16") {
			t.Errorf("the rest is %+v", block)
		}
	}
}
