//go:build cluster

package helm

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// patience bounds the time that controllers may take.
const patience = 2 * time.Minute

// TestControllers tests the chart with Kubernetes' controllers: install, evict,
// scale and roll. The test plays the machines and sets which pods are ready. The
// cluster must therefore have no machines, only an API server and controllers; with
// machines the test fails at once.
//
//	.ci/cluster -run TestControllers
func TestControllers(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatalf("KUBECONFIG: %v", err)
	}
	config.WarningHandler = rest.NoWarnings{}
	config.QPS, config.Burst = 100, 100
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	machines, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(machines.Items) > 0 {
		t.Fatalf("want a cluster without machines: %d, %v", len(machines.Items), err)
	}
	restrict(t, client)
	f := &kubelet{client: client}
	install := func(v values) {
		for _, o := range render(t, v) {
			if o.kind != "Pod" { // a test of the release's own
				apply(t, client, o)
			}
		}
	}

	install(minimal(t))
	want := []string{"prod-rath-node-0", "prod-rath-node-1", "prod-rath-node-2"}
	f.until(t, "three nodes and two routers", func(pods []corev1.Pod) bool {
		return slices.Equal(names(pods, "node"), want) && len(names(pods, "router")) == 2
	})
	// All start before any is ready, and only then may one go.
	f.readiness(t, true, "node", "router")
	f.until(t, "a pod may go", func([]corev1.Pod) bool {
		return f.allowed(t, "prod-rath-node") == 1 && f.allowed(t, "prod-rath-router") == 1
	})

	// One at a time may be taken away.
	if err := f.evict(t, "prod-rath-node-1"); err != nil {
		t.Errorf("the first: %v", err)
	}
	if err := f.evict(t, "prod-rath-node-2"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a second one while the first is away: %v", err)
	}
	f.until(t, "the node comes again", func(pods []corev1.Pod) bool { return slices.Equal(names(pods, "node"), want) })
	f.readiness(t, true, "node")

	// While NATS is unavailable no pod is ready, none restarts, and all may be evicted.
	f.readiness(t, false, "node", "router")
	f.until(t, "no pod is ready", func([]corev1.Pod) bool { return f.allowed(t, "prod-rath-node") == 0 })
	for _, name := range want[:2] {
		if err := f.evict(t, name); err != nil {
			t.Errorf("%s does no work and may not go: %v", name, err)
		}
	}
	f.until(t, "the nodes come again", func(pods []corev1.Pod) bool { return slices.Equal(names(pods, "node"), want) })
	f.readiness(t, true, "node", "router")

	// More nodes, and another drain for all of them: one after the other.
	v := with(t, minimal(t), "node.replicas", 4)
	install(v)
	want = append(want, "prod-rath-node-3")
	f.until(t, "four nodes", func(pods []corev1.Pod) bool { return slices.Equal(names(pods, "node"), want) })
	f.readiness(t, true, "node")
	install(with(t, v, "node.drainSeconds", 60))
	for range want {
		f.until(t, "the next node is new", func(pods []corev1.Pod) bool {
			away := 0
			for _, p := range pods {
				if role(p) == "node" && !ready(p) {
					away++
				}
			}
			if away > 1 {
				t.Fatalf("%d nodes are away at once", away)
			}
			return away == 1 && slices.Equal(names(pods, "node"), want)
		})
		f.readiness(t, true, "node")
	}
	f.until(t, "all nodes have the time that they need to stop", func(pods []corev1.Pod) bool {
		return !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return role(p) == "node" && *p.Spec.TerminationGracePeriodSeconds != 90 })
	})
}

// kubelet plays the machines of a cluster that has none.
type kubelet struct{ client kubernetes.Interface }

func (f *kubelet) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	all, err := f.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return all.Items
}

// until asks again and again whether the pods are as they should be.
func (f *kubelet) until(t *testing.T, what string, done func([]corev1.Pod) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		pods := f.pods(t)
		if done(pods) {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			var have []string
			for _, p := range pods {
				have = append(have, fmt.Sprint(p.Name, " ready ", ready(p)))
			}
			t.Fatalf("not within %v: %s; there are %s", patience, what, strings.Join(have, ", "))
		}
	}
}

// readiness sets whether all pods of the roles are ready.
func (f *kubelet) readiness(t *testing.T, is bool, roles ...string) {
	t.Helper()
	state := corev1.ConditionFalse
	if is {
		state = corev1.ConditionTrue
	}
	for _, p := range f.pods(t) {
		if !slices.Contains(roles, role(p)) || p.DeletionTimestamp != nil || ready(p) == is && p.Status.Phase == corev1.PodRunning {
			continue
		}
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: state, LastTransitionTime: metav1.Now()}}
		if _, err := f.client.CoreV1().Pods(namespace).UpdateStatus(t.Context(), &p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (f *kubelet) evict(t *testing.T, name string) error {
	t.Helper()
	return f.client.PolicyV1().Evictions(namespace).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}})
}

// allowed returns the number of pods that a budget allows to evict now.
func (f *kubelet) allowed(t *testing.T, budget string) int32 {
	t.Helper()
	b, err := f.client.PolicyV1().PodDisruptionBudgets(namespace).Get(t.Context(), budget, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return b.Status.DisruptionsAllowed
}

func role(p corev1.Pod) string { return p.Labels["app.kubernetes.io/component"] }

func ready(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// names returns the names of a role's pods that are not being deleted.
func names(pods []corev1.Pod, of string) []string {
	var out []string
	for _, p := range pods {
		if role(p) == of && p.DeletionTimestamp == nil {
			out = append(out, p.Name)
		}
	}
	slices.Sort(out)
	return out
}
