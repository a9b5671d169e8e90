//go:build cluster

package helm

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// TestServer installs the rendered cases on the API server of KUBECONFIG, in a
// namespace that enforces Pod Security "restricted", with strict validation of
// fields, and creates a pod of each template. Any cluster works; it needs no machine,
// since no pod has to run. Without KEDA the server has no ScaledObject, so
// autoscaling is off.
//
//	.ci/cluster -run TestServer
func TestServer(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatalf("KUBECONFIG: %v", err)
	}
	said := &warnings{}
	config.WarningHandler = said
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Kubernetes %s", version)
	restrict(t, client)
	for name, v := range cases(t) {
		t.Run(name, func(t *testing.T) {
			v := with(t, v, "autoscaling.enabled", false)
			all := render(t, v)
			for _, o := range all {
				apply(t, client, o)
			}
			for _, w := range members(all) {
				pod := &corev1.Pod{ObjectMeta: w.meta, Spec: w.spec}
				pod.Name, pod.Namespace = w.name+"-trial", namespace
				for _, s := range w.spec.Containers[0].VolumeMounts {
					if s.Name == "store" && !slices.ContainsFunc(w.spec.Volumes, func(v corev1.Volume) bool { return v.Name == "store" }) {
						claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "store"} // the fields that the StatefulSet's controller adds
						pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "store", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}})
					}
				}
				if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
					t.Errorf("pod %s: %v", pod.Name, err)
				}
				remove(t, client, pod.Name)
			}
			for _, w := range said.take() {
				t.Errorf("the server warns: %s", w)
			}
		})
	}
	// The namespace rejects pods that are not restricted.
	w := members(render(t, minimal(t)))[0]
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "loose", Namespace: namespace}, Spec: w.spec}
	pod.Spec.SecurityContext.RunAsNonRoot, pod.Spec.SecurityContext.SeccompProfile = nil, nil
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "restricted") {
		t.Errorf("a pod that is not restricted: %v", err)
	}
}

// restrict creates the namespace and the objects that the cases require.
func restrict(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted",
	}}}
	_, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	for end := time.Now().Add(patience); apierrors.IsAlreadyExists(err) && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		// The previous test's namespace is deleted in the background.
		_, err = client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatalf("the namespace must be this test's own: %v", err)
	}
	// The objects of a release in the sandboxes' namespace are deleted with it.
	sandboxes := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sandboxesOf(render(t, cases(t)["full"])), Labels: ns.Labels}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), sandboxes, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "agents"}, Value: 1}
	if _, err := client.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Controllers make this one where they run.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := client.SchedulingV1().PriorityClasses().Delete(ctx, class.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// resources are the kinds' names in addresses.
var resources = map[string]struct{ client, path string }{
	"StatefulSet": {"apps", "statefulsets"}, "Deployment": {"apps", "deployments"}, "Job": {"batch", "jobs"}, "Service": {"core", "services"},
	"ServiceAccount": {"core", "serviceaccounts"}, "Secret": {"core", "secrets"}, "Pod": {"core", "pods"},
	"PodDisruptionBudget": {"policy", "poddisruptionbudgets"}, "NetworkPolicy": {"networking", "networkpolicies"}, "Ingress": {"networking", "ingresses"},
	"Role": {"rbac", "roles"}, "RoleBinding": {"rbac", "rolebindings"},
}

// apply is Helm's action on an object: a server-side apply.
func apply(t *testing.T, client kubernetes.Interface, o object) {
	t.Helper()
	r, ok := resources[o.kind]
	if !ok {
		t.Fatalf("no address for %s", o.kind)
	}
	rests := map[string]rest.Interface{
		"apps": client.AppsV1().RESTClient(), "core": client.CoreV1().RESTClient(),
		"batch": client.BatchV1().RESTClient(), "policy": client.PolicyV1().RESTClient(), "networking": client.NetworkingV1().RESTClient(),
		"rbac": client.RbacV1().RESTClient(),
	}
	body, err := yaml.YAMLToJSON([]byte(o.yaml))
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(body) {
		t.Fatalf("%s: not JSON", o.file)
	}
	err = rests[r.client].Patch(types.ApplyPatchType).Namespace(o.meta.GetNamespace()).Resource(r.path).Name(o.meta.GetName()).
		Param("fieldManager", "helm").Param("force", "true").Param("fieldValidation", metav1.FieldValidationStrict).
		Body(body).Do(t.Context()).Error()
	if err != nil {
		t.Errorf("%s: %s %s: %v", o.file, o.kind, o.meta.GetName(), err)
	}
}

// remove deletes a pod that runs nowhere.
func remove(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	if err := client.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Error(err)
	}
}

// warnings collects the warnings of a server.
type warnings struct {
	mu   sync.Mutex
	text []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := w.text
	w.text = nil
	return text
}
