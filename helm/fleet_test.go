package helm

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// TestTwoReleases: one value joins two releases with the same label and key, and services
// and policies that include the pods of both. Without it they share none of these.
func TestTwoReleases(t *testing.T) {
	first := render(t, minimal(t))
	joined := render(t, with(t, with(t, minimal(t), "fullnameOverride", "canary"), "gossip.fleet", "prod-rath"))
	apart := render(t, with(t, minimal(t), "fullnameOverride", "canary"))
	one := members(first)[0]
	for _, tc := range []struct {
		name string
		all  []object
		want bool
	}{{"joined", joined, true}, {"apart", apart, false}} {
		for _, w := range members(tc.all) {
			c := w.spec.Containers[0]
			if same := flagOf(c, "label") == flagOf(one.spec.Containers[0], "label"); same != tc.want {
				t.Errorf("%s: %s has the label %s", tc.name, w.name, flagOf(c, "label"))
			}
			takes := func(what string, s labels.Selector) {
				t.Helper()
				if s.Matches(labels.Set(w.meta.Labels)) != tc.want {
					t.Errorf("%s: %s of the first release takes in %s: want %v", tc.name, what, w.name, tc.want)
				}
			}
			for _, s := range of[*corev1.Service](first) {
				if s.Spec.ClusterIP == corev1.ClusterIPNone {
					takes("service "+s.Name, labels.SelectorFromSet(s.Spec.Selector))
				}
			}
			for _, p := range of[*networkingv1.NetworkPolicy](first) {
				if len(p.Spec.Egress) > 0 && p.Labels["app.kubernetes.io/component"] != "provision" {
					takes("ingress of "+p.Name, selectorOf(t, p.Spec.Ingress[0].From[0].PodSelector))
					takes("egress of "+p.Name, selectorOf(t, p.Spec.Egress[0].To[0].PodSelector))
				}
			}
		}
	}
}

// TestLongNamesDiffer: shortening names does not make two releases equal.
func TestLongNamesDiffer(t *testing.T) {
	long := strings.Repeat("a", 40)
	a, b := render(t, with(t, minimal(t), "fullnameOverride", long+"-one")), render(t, with(t, minimal(t), "fullnameOverride", long+"-two"))
	for i := range a {
		if a[i].kind == b[i].kind && a[i].meta.GetName() == b[i].meta.GetName() {
			t.Errorf("both have %s %s", a[i].kind, a[i].meta.GetName())
		}
	}
}

// TestPools: each pool of the list is a separate StatefulSet, with a budget and a scaler.
// It has its own settings, and node's for the rest.
func TestPools(t *testing.T) {
	v := with(t, cases(t)["full"], "pools", []any{
		values{"name": "light", "replicas": 5, "slots": 128, "unsafe": false, "image": values{"tag": "8"}, "env": []any{}, "autoscaling": values{"maxReplicas": 99}},
		values{"name": "gpu", "nodeSelector": values{"gpu": "yes"}, "store": values{"persistent": false, "size": "1Gi"}},
	})
	all := render(t, with(t, v, "autoscaling.enabled", false))
	sets := map[string]*appsv1.StatefulSet{}
	for _, s := range of[*appsv1.StatefulSet](all) {
		sets[flagOf(s.Spec.Template.Spec.Containers[0], "pool")] = s
	}
	light, gpu := sets["light"], sets["gpu"]
	if len(sets) != 3 || light == nil || gpu == nil || sets["review"] == nil {
		t.Fatalf("the pools are %v", sets)
	}
	c := light.Spec.Template.Spec.Containers[0]
	if *light.Spec.Replicas != 5 || flagOf(c, "slots") != "128" || slices.Contains(c.Args, "-unsafe") || c.Image != "registry.example.com/review:8" || c.Command[0] != "/review" {
		t.Errorf("light is %d of %+v", *light.Spec.Replicas, c)
	}
	if s := gpu.Spec.Template.Spec; s.NodeSelector["gpu"] != "yes" || !slices.Contains(s.Containers[0].Args, "-unsafe") || len(gpu.Spec.VolumeClaimTemplates) != 0 {
		t.Errorf("gpu is %+v", s)
	}
	// Each is selected by its own set and budget, and by no other one.
	pods := map[string]labels.Set{}
	for _, w := range members(all) {
		pods[w.name] = w.meta.Labels
	}
	only := func(what, name string, s labels.Selector) {
		t.Helper()
		for pod, set := range pods {
			if s.Matches(set) != (pod == name) {
				t.Errorf("%s %s and the pods of %s: %v", what, name, pod, pod != name)
			}
		}
	}
	for _, s := range sets {
		only("set", s.Name, selectorOf(t, s.Spec.Selector))
	}
	budgets := of[*policyv1.PodDisruptionBudget](all)
	if len(budgets) != 4 {
		t.Errorf("%d budgets, want those of three pools and of routers", len(budgets))
	}
	for _, b := range budgets {
		only("budget", b.Name, selectorOf(t, b.Spec.Selector))
	}
	most := map[string]int32{}
	for _, s := range of[*ScaledObject](render(t, v)) {
		_, pool, _ := strings.Cut(s.Spec.Triggers[0].Metadata["url"], "pool=")
		most[s.Spec.ScaleTargetRef.Name+" "+pool] = *s.Spec.MaxReplicaCount
	}
	if len(most) != 3 || most[light.Name+" light"] != 99 || most[gpu.Name+" gpu"] != 40 {
		t.Errorf("at most %v nodes", most)
	}
}
