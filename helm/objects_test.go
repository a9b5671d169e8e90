package helm

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestNamesAndLabels(t *testing.T) {
	each(t, func(t *testing.T, all []object) {
		seen := map[string]bool{}
		for _, o := range all {
			id := o.kind + " " + o.meta.GetName()
			if seen[id] {
				t.Errorf("%s twice", id)
			}
			seen[id] = true
			want := namespace
			if o.meta.GetLabels()["app.kubernetes.io/component"] == "sandbox" {
				want = sandboxesOf(all)
			}
			if o.meta.GetNamespace() != want {
				t.Errorf("%s is in namespace %q, want %q", id, o.meta.GetNamespace(), want)
			}
			if bad := validation.IsDNS1035Label(o.meta.GetName()); len(bad) > 0 {
				t.Errorf("%s: %v", id, bad)
			}
			for k, v := range o.meta.GetLabels() {
				if bad := append(validation.IsQualifiedName(k), validation.IsValidLabelValue(v)...); len(bad) > 0 {
					t.Errorf("%s: label %s=%s: %v", id, k, v, bad)
				}
			}
			for _, k := range []string{"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"} {
				if o.meta.GetLabels()[k] == "" {
					t.Errorf("%s has no label %s", id, k)
				}
			}
		}
	})
}

// sandboxesOf returns the namespace in which nodes create pods of sandboxes.
func sandboxesOf(all []object) string {
	for _, w := range workloads(all) {
		if w.role != "node" {
			continue
		}
		for _, e := range w.spec.Containers[0].Env {
			if e.Name == "RATH_SANDBOX_KUBERNETES_NAMESPACE" {
				return e.Value
			}
		}
	}
	return namespace
}

// TestLongNames holds that the name of a pod is the name of a node: at most 64
// characters, no dots.
func TestLongNames(t *testing.T) {
	node := regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	for _, name := range []string{strings.Repeat("a", 63), "my.release.of-agents", strings.Repeat("long-", 12) + "x"} {
		all := render(t, with(t, minimal(t), "fullnameOverride", name))
		for _, w := range members(all) {
			pod := w.name + "-0"
			if w.role == "router" {
				pod = w.name + "-5d4f8c7b9f-x2x7k"
			}
			if !node.MatchString(pod) || len(validation.IsDNS1123Label(pod)) > 0 {
				t.Errorf("fullnameOverride %s: pod %s", name, pod)
			}
		}
		for _, s := range of[*corev1.Service](all) {
			if bad := validation.IsDNS1035Label(s.Name); len(bad) > 0 {
				t.Errorf("service %s: %v", s.Name, bad)
			}
		}
	}
}

// selected are the roles of the pods that labels select.
func selected(all []object, selector labels.Selector) []string {
	var roles []string
	for _, w := range workloads(all) {
		if selector.Matches(labels.Set(w.meta.Labels)) {
			role := w.role
			if role == "" {
				role = "test"
			}
			roles = append(roles, role)
		}
	}
	slices.Sort(roles)
	return roles
}

func selectorOf(t testing.TB, s *metav1.LabelSelector) labels.Selector {
	t.Helper()
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return sel
}

// roles are the roles in the values.
func roles(all []object) []string {
	var r []string
	for _, w := range members(all) {
		r = append(r, w.role)
	}
	slices.Sort(r)
	return r
}

// others are the roles and those of pods outside the fleet.
func others(all []object) []string {
	r := roles(all)
	for range len(workloads(all)) - len(r) {
		r = append(r, "test")
	}
	return r
}

// TestSelectors holds that everything selects the pods that it is about, and no
// other ones.
func TestSelectors(t *testing.T) {
	each(t, func(t *testing.T, all []object) {
		expect := func(what string, selector labels.Selector, want ...string) {
			t.Helper()
			if got := selected(all, selector); !slices.Equal(got, want) {
				t.Errorf("%s selects %v, want %v", what, got, want)
			}
		}
		for _, w := range members(all) {
			expect(w.name, selectorOf(t, w.selector), w.role)
			for _, c := range w.spec.TopologySpreadConstraints {
				expect(w.name+" spread", selectorOf(t, c.LabelSelector), w.role)
			}
			if len(w.spec.TopologySpreadConstraints) != 2 {
				t.Errorf("%s spreads by %d", w.name, len(w.spec.TopologySpreadConstraints))
			}
			for k := range w.selector.MatchLabels {
				if strings.Contains(k, "version") || strings.Contains(k, "chart") {
					t.Errorf("%s selects by %s, which changes with each release", w.name, k)
				}
			}
		}
		for _, s := range of[*corev1.Service](all) {
			want := []string{"router"}
			if s.Spec.ClusterIP == corev1.ClusterIPNone || strings.HasSuffix(s.Name, "-waiting") {
				want = roles(all)
			}
			expect("service "+s.Name, labels.SelectorFromSet(s.Spec.Selector), want...)
			for _, w := range members(all) {
				if !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(w.meta.Labels)) {
					continue
				}
				for _, p := range s.Spec.Ports {
					target := portOf(t, w.spec.Containers[0], p.TargetPort.StrVal)
					if protocol(target.Protocol) != protocol(p.Protocol) {
						t.Errorf("service %s: port %s leads to %s", s.Name, p.Name, target.Protocol)
					}
				}
			}
		}
		budgets := map[string]bool{}
		for _, b := range of[*policyv1.PodDisruptionBudget](all) {
			role := b.Labels["app.kubernetes.io/component"]
			budgets[role] = true
			expect("budget "+b.Name, selectorOf(t, b.Spec.Selector), role)
		}
		for _, r := range roles(all) {
			if !budgets[r] {
				t.Errorf("%s pods have no disruption budget", r)
			}
		}
		for _, p := range of[*networkingv1.NetworkPolicy](all) {
			switch p.Labels["app.kubernetes.io/component"] {
			case "router":
				expect("policy "+p.Name, selectorOf(t, &p.Spec.PodSelector), "router")
			case "provision": // applies before the installation, when the release's own policy does not exist yet
				expect("policy "+p.Name, selectorOf(t, &p.Spec.PodSelector), "test")
				if job := one[*batchv1.Job](t, all); !selectorOf(t, &p.Spec.PodSelector).Matches(labels.Set(job.Spec.Template.Labels)) {
					t.Errorf("policy %s does not select the job's pod", p.Name)
				}
				if len(p.Spec.Ingress) > 0 || len(p.Spec.PolicyTypes) != 2 || len(p.Spec.Egress) != 2 || p.Annotations["helm.sh/hook"] != "pre-install,pre-upgrade" || p.Annotations["helm.sh/hook-weight"] != "-1" {
					t.Errorf("policy %s: %+v %+v", p.Name, p.Annotations, p.Spec)
				}
			case "sandbox":
				expect("policy "+p.Name, selectorOf(t, &p.Spec.PodSelector))
				expect("nodes of "+p.Name, selectorOf(t, p.Spec.Ingress[0].From[0].PodSelector), roles(all)...)
				if from := p.Spec.Ingress[0].From[0].NamespaceSelector; p.Namespace != namespace && !selectorOf(t, from).Matches(labels.Set{corev1.LabelMetadataName: namespace}) {
					t.Errorf("policy %s: nodes of another namespace: %v", p.Name, from)
				}
				if len(p.Spec.Egress) > 0 || len(p.Spec.PolicyTypes) != 2 {
					t.Errorf("policy %s lets sandboxes out: %+v", p.Name, p.Spec)
				}
			default:
				expect("policy "+p.Name, selectorOf(t, &p.Spec.PodSelector), others(all)...)
				expect("gossip of "+p.Name, selectorOf(t, p.Spec.Ingress[0].From[0].PodSelector), roles(all)...)
				expect("gossip of "+p.Name, selectorOf(t, p.Spec.Egress[0].To[0].PodSelector), roles(all)...)
				for _, ports := range [][]networkingv1.NetworkPolicyPort{p.Spec.Ingress[0].Ports, p.Spec.Egress[0].Ports} {
					for i, name := range []string{"gossip-tcp", "gossip-udp"} {
						want := portOf(t, members(all)[0].spec.Containers[0], name)
						if ports[i].Port.IntVal != want.ContainerPort || *ports[i].Protocol != protocol(want.Protocol) {
							t.Errorf("policy %s: %v %v, want %s", p.Name, ports[i].Port, *ports[i].Protocol, name)
						}
					}
				}
			}
		}
	})
}

func protocol(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return p
}

// TestGossipService: nodes find each other before any of them is ready.
func TestGossipService(t *testing.T) {
	each(t, func(t *testing.T, all []object) {
		var gossip *corev1.Service
		for _, s := range of[*corev1.Service](all) {
			if s.Spec.ClusterIP == corev1.ClusterIPNone {
				gossip = s
			}
		}
		if gossip == nil || !gossip.Spec.PublishNotReadyAddresses {
			t.Fatalf("no headless service that names pods which are not ready: %+v", gossip)
		}
		if s := one[*appsv1.StatefulSet](t, all); s.Spec.ServiceName != gossip.Name || s.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
			t.Errorf("nodes are named by %s and start %s", s.Spec.ServiceName, s.Spec.PodManagementPolicy)
		}
		for _, w := range members(all) {
			c := w.spec.Containers[0]
			if join := flagOf(c, "join"); join != gossip.Name+"."+namespace+".svc" {
				t.Errorf("%s joins %s", w.name, join)
			}
			for name, want := range map[string]string{"name": "$(POD_NAME)", "gossip": "$(POD_IP)"} {
				if got := flagOf(c, name); got != want {
					t.Errorf("%s: -%s=%s, want %s", w.name, name, got, want)
				}
			}
			vars := map[string]string{}
			for _, e := range c.Env {
				if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
					vars[e.Name] = e.ValueFrom.FieldRef.FieldPath
				}
			}
			if want := map[string]string{"POD_NAME": "metadata.name", "POD_IP": "status.podIP"}; !maps.Equal(vars, want) {
				t.Errorf("%s: %v, want %v", w.name, vars, want)
			}
		}
	})
}

// TestGossipKey holds that the chart makes no key, which would lie in each revision
// of a release and be in the way of a rollback, and that the pods mount the secret that
// has it.
func TestGossipKey(t *testing.T) {
	all := render(t, minimal(t))
	if n := len(of[*corev1.Secret](all)); n != 0 {
		t.Errorf("%d secrets in the release", n)
	}
	for _, w := range members(all) {
		mounted := slices.ContainsFunc(w.spec.Volumes, func(v corev1.Volume) bool {
			return v.Secret != nil && v.Secret.SecretName == "rath-gossip"
		})
		if file := flagOf(w.spec.Containers[0], "gossip-key-file"); !mounted || file != "/etc/rath/gossip/key" {
			t.Errorf("%s: mounted %v, key file %s", w.name, mounted, file)
		}
	}
}

// TestNATSPorts holds that the policy opens exactly the ports that addresses
// name, or leave to their scheme.
func TestNATSPorts(t *testing.T) {
	for _, tc := range []struct {
		url        string
		monitoring []string
		want       []string
	}{
		{"tls://a:4222", []string{"http://a:8222"}, []string{"4222", "8222"}},
		{"nats://a,tls://b:4333", []string{"https://a", "http://b/"}, []string{"4222", "4333", "443", "80"}},
		{"tls://[fd00::1]:4444", []string{"http://[fd00::1]:8222"}, []string{"4444", "8222"}},
	} {
		v := with(t, with(t, minimal(t), "nats.url", tc.url), "nats.monitoring", tc.monitoring)
		v = with(t, with(t, v, "nats.replicas", 1), "nats.insecure", true)
		var policy *networkingv1.NetworkPolicy
		for _, p := range of[*networkingv1.NetworkPolicy](render(t, v)) {
			if len(p.Spec.Egress) > 0 {
				policy = p
			}
		}
		var got []string
		for _, p := range policy.Spec.Egress[2].Ports {
			got = append(got, p.Port.String())
		}
		slices.Sort(got)
		slices.Sort(tc.want)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s %v: ports %v, want %v", tc.url, tc.monitoring, got, tc.want)
		}
	}
}

// TestAutoscaling checks the objects that KEDA needs. Package node tests a node's answer to
// KEDA, with the golden files.
func TestAutoscaling(t *testing.T) {
	if n := len(of[*ScaledObject](render(t, minimal(t)))); n != 0 {
		t.Errorf("%d scaled objects though autoscaling is off", n)
	}
	v := with(t, cases(t)["full"], "node.pool", "review")
	all := render(t, v)
	scaled, nodes := one[*ScaledObject](t, all), one[*appsv1.StatefulSet](t, all)
	if r := nodes.Spec.Replicas; r == nil || *r != 3 {
		t.Errorf("a new fleet has %v nodes, want minReplicas", r)
	}
	if target := scaled.Spec.ScaleTargetRef; target.Name != nodes.Name || target.Kind != "StatefulSet" || target.APIVersion != "apps/v1" {
		t.Errorf("it scales %+v", target)
	}
	if *scaled.Spec.MinReplicaCount < 1 || *scaled.Spec.MaxReplicaCount != 40 {
		t.Errorf("%d to %d", *scaled.Spec.MinReplicaCount, *scaled.Spec.MaxReplicaCount)
	}
	down := scaled.Spec.Advanced.HorizontalPodAutoscalerConfig.Behavior.ScaleDown
	grace := *nodes.Spec.Template.Spec.TerminationGracePeriodSeconds
	if p := down.Policies; len(p) != 1 || p[0].Value != 1 || int64(p[0].PeriodSeconds) < grace || p[0].PeriodSeconds > 1800 {
		t.Errorf("nodes that need %d s to stop are taken away by %+v", grace, p)
	}
	if len(scaled.Spec.Triggers) != 1 {
		t.Fatalf("triggers %+v", scaled.Spec.Triggers)
	}
	trigger := scaled.Spec.Triggers[0]
	if m := trigger.Metadata; trigger.Type != "metrics-api" || m["valueLocation"] == "" || m["targetValue"] != "8" {
		t.Errorf("trigger %+v", trigger)
	}
	// KEDA's operator can reach its endpoint: a service of the release, whose pods accept the
	// connection.
	url, err := url.Parse(trigger.Metadata["url"])
	if err != nil || url.Scheme != "http" || url.Query().Get("pool") != "review" {
		t.Fatalf("it asks %s, %v", trigger.Metadata["url"], err)
	}
	var service *corev1.Service
	for _, s := range of[*corev1.Service](all) {
		if s.Name+"."+s.Namespace+".svc" == url.Hostname() {
			service = s
		}
	}
	if service == nil || service.Spec.Type != "" || service.Spec.PublishNotReadyAddresses || len(service.Spec.Ports) != 1 || fmt.Sprint(service.Spec.Ports[0].Port) != url.Port() {
		t.Fatalf("it asks %s, which is %+v", url.Host, service)
	}
	target := service.Spec.Ports[0].TargetPort.StrVal
	for _, w := range members(all) {
		listen := flagOf(w.spec.Containers[0], "health")
		if at := portOf(t, w.spec.Containers[0], target); listen != fmt.Sprintf("0.0.0.0:%d", at.ContainerPort) {
			t.Errorf("%s answers at %s, and is asked at port %d", w.name, listen, at.ContainerPort)
		}
	}
	lets := func(v values) []networkingv1.NetworkPolicyIngressRule {
		var rules []networkingv1.NetworkPolicyIngressRule
		for _, p := range of[*networkingv1.NetworkPolicy](render(t, v)) {
			for _, rule := range p.Spec.Ingress {
				if len(rule.Ports) == 1 && rule.Ports[0].Port.StrVal == target && len(p.Spec.PodSelector.MatchExpressions) == 0 &&
					labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(nodes.Spec.Template.Labels)) {
					rules = append(rules, rule)
				}
			}
		}
		return rules
	}
	keda := map[string]string{"kubernetes.io/metadata.name": "keda"}
	if r := lets(v); len(r) != 1 || len(r[0].From) != 1 || r[0].From[0].PodSelector != nil || !maps.Equal(r[0].From[0].NamespaceSelector.MatchLabels, keda) {
		t.Errorf("the policy lets KEDA in by %+v", r)
	}
	if r := lets(with(t, v, "networkPolicy.scalerFrom", []any{})); len(r) != 1 || len(r[0].From) != 0 {
		t.Errorf("the policy lets everybody in by %+v", r)
	}
	if r := lets(with(t, v, "autoscaling.enabled", false)); len(r) != 0 {
		t.Errorf("without autoscaling the policy lets in by %+v", r)
	}
	// Without routers the nodes answer.
	if s := of[*corev1.Service](render(t, with(t, v, "router.enabled", false))); len(s) != 2 {
		t.Errorf("%d services without routers, want those of gossip and of what waits", len(s))
	}
}

// policies returns the policies that restrict the connections of pods.
func policies(all []object) []*networkingv1.NetworkPolicy {
	return slices.DeleteFunc(of[*networkingv1.NetworkPolicy](all), func(p *networkingv1.NetworkPolicy) bool {
		return len(p.Spec.Egress) == 0 || p.Labels["app.kubernetes.io/component"] == "provision"
	})
}
