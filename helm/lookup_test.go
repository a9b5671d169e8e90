package helm

import (
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
)

// inCluster answers the chart's questions about what is there already.
type inCluster struct {
	secrets dynamic.NamespaceableResourceInterface
}

// GetClientFor implements engine.ClientProvider.
func (c inCluster) GetClientFor(string, string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return c.secrets, true, nil
}

// TestGossipKeyIsKept holds that an upgrade does not draw another key: nodes
// with the old and the new one would not see each other.
func TestGossipKeyIsKept(t *testing.T) {
	old := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "prod-rath-gossip", Namespace: namespace},
		Data:       map[string][]byte{"key": []byte("a2VwdA==")},
	}
	there := fake.NewSimpleDynamicClient(scheme.Scheme, old)
	c := load(t)
	in, err := toRender(t, c, with(t, minimal(t), "gossip.secret", ""))
	if err != nil {
		t.Fatal(err)
	}
	out, err := engine.RenderWithClientProvider(c, in, inCluster{there.Resource(corev1.SchemeGroupVersion.WithResource("secrets"))})
	if err != nil {
		t.Fatal(err)
	}
	text := out["rath/templates/gossip.yaml"]
	secret, ok := decode(t, "gossip.yaml", strings.TrimSpace(text)).it.(*corev1.Secret)
	if !ok || string(secret.Data["key"]) != "a2VwdA==" {
		t.Errorf("the upgrade has another key:\n%s", text)
	}
}
