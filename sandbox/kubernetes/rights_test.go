//go:build cluster

package kubernetes

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// The rendered chart has this account for nodes, in this namespace.
const (
	releaseNamespace = "agents"
	nodeAccount      = "prod-fleet"
)

// chartObjects returns the objects of some kinds of the rendered chart, in which pods of
// sandboxes are in testNamespace.
func chartObjects(t *testing.T, kinds ...string) (all []*unstructured.Unstructured) {
	t.Helper()
	f := must.Get(os.Open("../../helm/testdata/full.yaml"))(t)
	defer f.Close()
	for in := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		u := new(unstructured.Unstructured)
		if err := in.Decode(&u.Object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if len(u.Object) > 0 && slices.Contains(kinds, u.GetKind()) {
			all = append(all, u)
		}
	}
}

// node is the kubeconfig with which the tests act as a node does: with a token of the
// account from the chart.
var node struct {
	once sync.Once
	file string
}

// asNode creates the account and rights of nodes, and returns their kubeconfig.
func asNode(t *testing.T) string {
	t.Helper()
	node.once.Do(func() {
		client := newClient(t)
		makeNamespace(t, client, testNamespace)
		makeNamespace(t, client, releaseNamespace)
		resources := map[string]schema.GroupVersionResource{
			"ServiceAccount": {Version: "v1", Resource: "serviceaccounts"},
			"Role":           {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
			"RoleBinding":    {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
			"NetworkPolicy":  {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
		}
		for _, o := range chartObjects(t, slices.Collect(maps.Keys(resources))...) {
			if _, err := client.Resource(resources[o.GetKind()]).Namespace(o.GetNamespace()).Apply(t.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "helm", Force: true}); err != nil {
				t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
			}
		}
		node.file = accountConfig(t, releaseNamespace, nodeAccount)
		in := must.Get(connect(t.Context(), node.file, testNamespace, ModePod))(t)
		until(t, "the role counts", func() bool {
			_, err := in.list(t.Context(), labelName+"="+nameValue)
			return err == nil
		})
	})
	if node.file == "" {
		t.Fatal("nodes have no account")
	}
	return node.file
}

// accountConfig writes a kubeconfig with a token of a service account.
func accountConfig(t *testing.T, namespace, name string) string {
	t.Helper()
	accounts := newClient(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}).Namespace(namespace)
	ask := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": map[string]any{"name": name}, "spec": map[string]any{}}}
	u := must.Get(accounts.Create(t.Context(), ask, metav1.CreateOptions{}, "token"))(t)
	token, _, _ := unstructured.NestedString(u.Object, "status", "token")
	config := must.Get(clientcmd.LoadFromFile(os.Getenv("KUBECONFIG")))(t)
	for _, user := range config.AuthInfos {
		user.Token = token
	}
	// The file outlives the test that creates it.
	file := filepath.Join(filepath.Dir(os.Getenv("KUBECONFIG")), namespace+"-"+name)
	must.Do(t, clientcmd.WriteToFile(*config, file))
	return file
}

// TestRights: a node needs each verb of the chart's role and no other one; a right outside
// the role is rejected.
func TestRights(t *testing.T) {
	began := auditSize(t)
	inModes(t, func(t *testing.T, in *cluster, _ *kubelet, controller *claimController, backend func(func(*Options)) *driver) {
		b := backend(nil)
		for epoch := range uint64(2) {
			sh(t, open(t, b, sandbox.Spec{Owner: "rights", Epoch: epoch + 1}), "true")
		}
		if _, err := b.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		if in.name() == ModePod {
			return
		}
		// The node also queries the reason of a missing pod.
		controller.set(true)
		_, err := backend(func(o *Options) { o.Start = time.Second }).Probe(t.Context())
		if controller.set(false); err == nil {
			t.Error("a pod without a controller")
		}
		granted := make(map[string]bool)
		for _, role := range chartObjects(t, "Role") {
			rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
			for _, r := range rules {
				rule := r.(map[string]any)
				for _, g := range rule["apiGroups"].([]any) {
					for _, resource := range rule["resources"].([]any) {
						for _, verb := range rule["verbs"].([]any) {
							granted[strings.Join([]string{g.(string), resource.(string), verb.(string)}, " ")] = true
						}
					}
				}
			}
		}
		until(t, "each right has been used", func() bool { return len(asked(t, began)) == len(granted) })
		for what, code := range asked(t, began) {
			if !granted[what] || code == 403 {
				t.Errorf("a node asks for %q, which is not in its role (%d)", what, code)
			}
		}
	})
	config, err := clientcmd.BuildConfigFromFlags("", asNode(t))
	must.Do(t, err)
	client, err := dynamic.NewForConfig(config)
	must.Do(t, err)
	of := func(namespace, group, version, resource string) dynamic.ResourceInterface {
		return client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}).Namespace(namespace)
	}
	pods, secrets := of(testNamespace, "", "v1", "pods"), of(testNamespace, "", "v1", "secrets")
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "other"}}}
	ctx := t.Context()
	for what, try := range map[string]func() error{
		"read a secret":          func() error { _, err := secrets.Get(ctx, "any", metav1.GetOptions{}); return err },
		"list secrets":           func() error { _, err := secrets.List(ctx, metav1.ListOptions{}); return err },
		"delete a secret":        func() error { return secrets.Delete(ctx, "any", metav1.DeleteOptions{}) },
		"watch pods":             func() error { _, err := pods.Watch(ctx, metav1.ListOptions{}); return err },
		"change a pod":           func() error { _, err := pods.Update(ctx, pod, metav1.UpdateOptions{}); return err },
		"run a command in a pod": func() error { _, err := pods.Create(ctx, pod, metav1.CreateOptions{}, "exec"); return err },
		"read the log of a pod":  func() error { _, err := pods.Get(ctx, "any", metav1.GetOptions{}, "log"); return err },
		"delete all pods":        func() error { return pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}) },
		"make pods beside the nodes": func() error {
			_, err := of(releaseNamespace, "", "v1", "pods").Create(ctx, pod, metav1.CreateOptions{})
			return err
		},
		"read a secret beside nodes": func() error {
			_, err := of(releaseNamespace, "", "v1", "secrets").Get(ctx, "any", metav1.GetOptions{})
			return err
		},
		"read a template": func() error {
			_, err := of(testNamespace, claimGroup, claimVersion, templatePlural).Get(ctx, "any", metav1.GetOptions{})
			return err
		},
		"change its role": func() error {
			return of(testNamespace, "rbac.authorization.k8s.io", "v1", "roles").Delete(ctx, "any", metav1.DeleteOptions{})
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("a node may %s: %v", what, err)
		}
	}
	// An account without the role gets an error with the missing rights.
	_, err = backend(t, func(o *Options) { o.Kubeconfig = accountConfig(t, testNamespace, "default") }).Probe(ctx)
	if err == nil || !strings.Contains(err.Error(), "needs the role that the chart has for sandboxes") {
		t.Errorf("without the role: %v", err)
	}
}

// TestCheck: each problem of a node is reported with its cause and a remedy, and no object
// is created.
func TestCheck(t *testing.T) {
	inModes(t, func(t *testing.T, in *cluster, _ *kubelet, _ *claimController, backend func(func(*Options)) *driver) {
		found, err := backend(nil).check(t.Context())
		if want := map[string]string{ModePod: "all 5 rights", ModeClaim: "all 11 rights"}[in.name()]; err != nil || !strings.Contains(found, want) {
			t.Errorf("a node: %q, %v", found, err)
		}
		for what, tc := range map[string]struct {
			change func(*Options)
			want   []string
		}{
			"another account": {
				func(o *Options) { o.Kubeconfig = accountConfig(t, testNamespace, "default") },
				[]string{"namespace sandboxes does not let this account", "create pods", "create secrets", "bind it to the role"},
			},
			"no such runtime class": {
				func(o *Options) { o.RuntimeClass = "none" },
				[]string{"accepts no pod", `RuntimeClass "none" not found`, "make the runtime class"},
			},
			"no such namespace": {
				func(o *Options) { o.Kubeconfig, o.Namespace = os.Getenv("KUBECONFIG"), "none" },
				[]string{"accepts no pod", `"none" not found`, "create the namespace"},
			},
			"no server": {
				func(o *Options) { o.Kubeconfig = nowhere(t) },
				[]string{"127.0.0.1:1", "refused", "network policy"},
			},
		} {
			_, err := backend(tc.change).check(t.Context())
			for _, w := range tc.want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("%s: %v, want %q in it", what, err, w)
				}
			}
		}
		if left := names(t, in); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// nowhere returns the kubeconfig of a server that does not exist.
func nowhere(t *testing.T) string {
	t.Helper()
	config := must.Get(clientcmd.LoadFromFile(os.Getenv("KUBECONFIG")))(t)
	for _, c := range config.Clusters {
		c.Server = "https://127.0.0.1:1"
	}
	file := filepath.Join(t.TempDir(), "config")
	must.Do(t, clientcmd.WriteToFile(*config, file))
	return file
}

// auditSize returns the length of the log of the nodes' API requests.
func auditSize(t *testing.T) int64 {
	t.Helper()
	fi, err := os.Stat(os.Getenv("RATH_TEST_AUDIT"))
	if err != nil {
		t.Fatalf("RATH_TEST_AUDIT: %v; run .ci/cluster sandboxes", err)
	}
	return fi.Size()
}

// asked returns the group, resource and verb of the nodes' API requests in the log from a
// position on, with the highest code of the answers.
func asked(t *testing.T, from int64) map[string]int {
	t.Helper()
	f := must.Get(os.Open(os.Getenv("RATH_TEST_AUDIT")))(t)
	defer f.Close()
	must.Get(f.Seek(from, io.SeekStart))(t)
	all := make(map[string]int)
	lines := bufio.NewScanner(f)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		var e struct {
			User           struct{ Username string }
			Verb           string
			ObjectRef      *struct{ APIGroup, Resource, Subresource, Namespace string }
			ResponseStatus struct{ Code int }
		}
		must.Do(t, json.Unmarshal(lines.Bytes(), &e))
		if e.User.Username != "system:serviceaccount:"+releaseNamespace+":"+nodeAccount || e.ObjectRef == nil || e.ObjectRef.Namespace != testNamespace {
			continue
		}
		what := strings.Join([]string{e.ObjectRef.APIGroup, strings.Trim(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/"), e.Verb}, " ")
		all[what] = max(all[what], e.ResponseStatus.Code)
	}
	return all
}
