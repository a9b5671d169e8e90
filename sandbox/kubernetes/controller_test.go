//go:build cluster

package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// claimController does the work of agent-sandbox's controllers for claims of empty pools: a
// claim becomes a Sandbox of its name, with the description from the template of its pool,
// and the Sandbox becomes a pod of its name. Each is owned by the previous one, so that the
// garbage collector of the cluster removes them.
type claimController struct {
	t                                     *testing.T
	claims, pools, templates, boxes, pods dynamic.ResourceInterface
	mu                                    sync.Mutex
	idle                                  bool // creates no objects
}

// installClaims installs the API of agent-sandbox in the API server.
func installClaims(t *testing.T, client dynamic.Interface) {
	t.Helper()
	f := must.Get(os.Open("testdata/agent-sandbox.yaml"))(t)
	defer f.Close()
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for in := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var u unstructured.Unstructured
		err := in.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			break
		}
		must.Do(t, err)
		if len(u.Object) == 0 {
			continue
		}
		if _, err := definitions.Create(t.Context(), &u, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	until(t, "the API server has the API of claims", func() bool {
		in := must.Get(connect(t.Context(), os.Getenv("KUBECONFIG"), testNamespace, ""))(t)
		return in.name() == ModeClaim
	})
}

// startClaims starts the controller, which runs until the test ends.
func startClaims(t *testing.T) *claimController {
	t.Helper()
	client := newClient(t)
	installClaims(t, client)
	of := func(group, version, resource string) dynamic.ResourceInterface {
		return client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}).Namespace(testNamespace)
	}
	c := &claimController{
		t: t, claims: of(claimGroup, claimVersion, claimPlural), pools: of(claimGroup, claimVersion, poolPlural), templates: of(claimGroup, claimVersion, templatePlural),
		boxes: of("agents.x-k8s.io", "v1beta1", "sandboxes"), pods: of("", "v1", "pods"),
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			if err := c.sync(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("the controller of claims: %v", err)
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return c
}

// set sets whether the controller is idle.
func (c *claimController) set(idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = idle
}

func (c *claimController) sync(ctx context.Context) error {
	c.mu.Lock()
	idle := c.idle
	c.mu.Unlock()
	if idle {
		return nil
	}
	claims, err := c.claims.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range claims.Items {
		if err := c.claimed(ctx, &claims.Items[i]); err != nil {
			return err
		}
	}
	boxes, err := c.boxes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range boxes.Items {
		box := &boxes.Items[i]
		template, _, _ := unstructured.NestedMap(box.Object, "spec", "podTemplate")
		if err := c.made(ctx, c.pods, "v1", "Pod", box, map[string]any{"spec": template["spec"]}, template["metadata"]); err != nil {
			return err
		}
	}
	return nil
}

// claimed creates the Sandbox of a claim, and reports the claim's status.
func (c *claimController) claimed(ctx context.Context, claim *unstructured.Unstructured) error {
	name, _, _ := unstructured.NestedString(claim.Object, "spec", "warmPoolRef", "name")
	pool, err := c.pools.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return c.waits(ctx, claim, "WarmPoolNotFound", `SandboxWarmPool "`+name+`" not found`)
	}
	if err != nil {
		return err
	}
	if n, _, _ := unstructured.NestedInt64(pool.Object, "spec", "replicas"); n != 0 {
		return errors.New("a pool that is to hold sandboxes, which this controller has not learned")
	}
	name, _, _ = unstructured.NestedString(pool.Object, "spec", "sandboxTemplateRef", "name")
	template, err := c.templates.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return c.waits(ctx, claim, "TemplateNotFound", `SandboxTemplate "`+name+`" not found`)
	}
	if err != nil {
		return err
	}
	spec, _, _ := unstructured.NestedMap(template.Object, "spec")
	delete(spec, "networkPolicyManagement")
	delete(spec, "envVarsInjectionPolicy")
	delete(spec, "volumeClaimTemplatesPolicy")
	if err := c.made(ctx, c.boxes, "agents.x-k8s.io/v1beta1", "Sandbox", claim, map[string]any{"spec": spec}, nil); err != nil {
		return err
	}
	return c.waits(ctx, claim, "DependenciesNotReady", "Pod is not ready")
}

// made creates the object that another object requires, unless it exists or its owner is
// being deleted.
func (c *claimController) made(ctx context.Context, in dynamic.ResourceInterface, version, kind string, by *unstructured.Unstructured, o map[string]any, labels any) error {
	if by.GetDeletionTimestamp() != nil {
		return nil
	}
	if _, err := in.Get(ctx, by.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	u := &unstructured.Unstructured{Object: o}
	if m, ok := labels.(map[string]any); ok {
		u.Object["metadata"] = map[string]any{"labels": m["labels"]}
	}
	u.SetAPIVersion(version)
	u.SetKind(kind)
	u.SetName(by.GetName())
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: by.GetAPIVersion(), Kind: by.GetKind(), Name: by.GetName(), UID: by.GetUID(), Controller: new(true), BlockOwnerDeletion: new(true)}})
	_, err := in.Create(ctx, u, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// waits reports why a claim has no sandbox yet.
func (c *claimController) waits(ctx context.Context, claim *unstructured.Unstructured, reason, message string) error {
	have, _, _ := unstructured.NestedSlice(claim.Object, "status", "conditions")
	if len(have) > 0 && have[0].(map[string]any)["reason"] == reason {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
		"type": "Ready", "status": "False", "reason": reason, "message": message, "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}}}})
	if err != nil {
		return err
	}
	_, err = c.claims.Patch(ctx, claim.GetName(), "application/merge-patch+json", patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
