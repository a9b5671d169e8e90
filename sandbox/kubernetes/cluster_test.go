//go:build cluster

package kubernetes

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
)

var _ = flag.Bool("update", false, "write testdata")

func TestMain(m *testing.M) {
	beContainer()
	Reexec()
	sandboxtest.Probe()
	if dir := os.Getenv(holderDir); dir != "" {
		fmt.Fprintln(os.Stderr, hold(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// testNamespace is created by the tests, with Pod Security's strictest level.
const testNamespace = "sandboxes"

// newClient returns a client of the server in KUBECONFIG.
func newClient(t *testing.T) *dynamic.DynamicClient {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatalf("KUBECONFIG: %v; run .ci/cluster sandboxes", err)
	}
	config.QPS, config.Burst = 500, 500
	client, err := dynamic.NewForConfig(config)
	must.Do(t, err)
	return client
}

// makeNamespace creates a namespace, if it is missing, and waits for its service account.
func makeNamespace(t *testing.T, client *dynamic.DynamicClient, name string) {
	t.Helper()
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
		"name": name, "labels": map[string]any{"pod-security.kubernetes.io/enforce": "restricted"},
	}}}
	spaces := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	if _, err := spaces.Create(t.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	// Controllers create the account shortly after.
	accounts := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}).Namespace(name)
	until(t, "the namespace has its service account", func() bool {
		_, err := accounts.Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
}

// newCluster creates the namespace of the tests, and a machine.
func newCluster(t *testing.T) (*cluster, *kubelet) {
	t.Helper()
	makeNamespace(t, newClient(t), testNamespace)
	in := must.Get(connect(t.Context(), os.Getenv("KUBECONFIG"), testNamespace, ModePod))(t)
	return in, startKubelet(t, in)
}

func backend(t *testing.T, change func(*Options)) *driver {
	t.Helper()
	o := Options{Kubeconfig: asNode(t), Namespace: testNamespace, Image: testImage, NodeImage: nodeImage, Program: nodeProgram, Holder: "test", Mode: ModePod, Start: 20 * time.Second}
	if change != nil {
		change(&o)
	}
	return newDriver(o)
}

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("it does not come that %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestConformance(t *testing.T) {
	newCluster(t)
	startClaims(t)
	for _, mode := range []string{ModePod, ModeClaim} {
		t.Run(mode, func(t *testing.T) {
			sandboxtest.TestBackend(t, func(t *testing.T) sandbox.Backend {
				return backend(t, func(o *Options) { o.Mode = mode })
			})
		})
	}
}
