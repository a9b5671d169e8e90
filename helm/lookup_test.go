package helm

import (
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
)

// inCluster answers the chart's lookups of existing objects.
type inCluster struct{ client dynamic.Interface }

// GetClientFor implements engine.ClientProvider.
func (c inCluster) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	return c.client.Resource(gv.WithResource(strings.ToLower(kind) + "s")), true, err
}

// nodesBeside renders the nodes where something is there already.
func nodesBeside(t *testing.T, v values, there ...runtime.Object) *appsv1.StatefulSet {
	t.Helper()
	c := load(t, chartDir)
	in, err := toRender(t, c, v)
	if err != nil {
		t.Fatal(err)
	}
	out, err := engine.RenderWithClientProvider(c, in, inCluster{fake.NewSimpleDynamicClient(scheme.Scheme, there...)})
	if err != nil {
		t.Fatal(err)
	}
	doc := strings.TrimPrefix(strings.TrimSpace(out["rath/templates/node.yaml"]), "---\n")
	return decode(t, "node.yaml", doc).it.(*appsv1.StatefulSet)
}

// TestAutoscalingKeepsNodes: an upgrade, including one that enables autoscaling, keeps the
// current number of nodes. An omitted replicas would mean 1.
func TestAutoscalingKeepsNodes(t *testing.T) {
	v := with(t, minimal(t), "autoscaling.enabled", true)
	for live, want := range map[int32]int32{0: 2, 1: 2, 7: 7} {
		var there []runtime.Object
		if live > 0 {
			there = append(there, &appsv1.StatefulSet{
				ObjectMeta: metav1.ObjectMeta{Name: "prod-rath-node", Namespace: namespace},
				Spec:       appsv1.StatefulSetSpec{Replicas: &live},
			})
		}
		if got := nodesBeside(t, v, there...).Spec.Replicas; got == nil || *got != want {
			t.Errorf("%d nodes become %v, want %d", live, got, want)
		}
	}
}

// TestChangedSecretRestarts holds that pods are replaced when a secret that they read
// has changed, and only then.
func TestChangedSecretRestarts(t *testing.T) {
	sum := func(name, text string) string {
		t.Helper()
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Data: map[string][]byte{"key": []byte(text)}}
		return nodesBeside(t, minimal(t), secret).Spec.Template.Annotations["checksum/secrets"]
	}
	for _, name := range []string{"rath-nats", "rath-gossip"} {
		old := sum(name, "old")
		if old == "" || old != sum(name, "old") || old == sum(name, "new") {
			t.Errorf("secret %s: the pods have %q, and then %q", name, old, sum(name, "new"))
		}
	}
	if got := sum("another", "old"); got != "" {
		t.Errorf("they have %q of a secret that is not theirs", got)
	}
}
