package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// The API of agent-sandbox (kubernetes-sigs) for claiming sandboxes.
const (
	claimGroup     = "extensions.agents.x-k8s.io"
	claimVersion   = "v1beta1"
	claimKind      = "SandboxClaim"
	claimPlural    = "sandboxclaims"
	poolPlural     = "sandboxwarmpools"
	templatePlural = "sandboxtemplates"
)

// claims creates pods by claims, which a controller of agent-sandbox turns into pods of the
// same names.
//
// A claim names a pool, and the pool a template, which contains the description of the pod.
// The description contains the name of the secret with the keys of one daemon, which
// neither an environment of a claim (values, no references) nor its metadata can provide.
// So each claim has a template and a pool of its own, without pre-created pods. The claim
// owns both and the secret, which are deleted with it.
type claims struct {
	direct
	claims, pools, templates dynamic.ResourceInterface
}

func (c claims) name() string { return ModeClaim }

func (c claims) begin(ctx context.Context, pod object) (object, error) {
	meta := pod["metadata"].(object)
	name, labels := meta["name"].(string), meta["labels"]
	version := claimGroup + "/" + claimVersion
	made, err := create(ctx, c.claims, object{
		"apiVersion": version, "kind": claimKind, "metadata": object{"name": name, "labels": labels},
		"spec": object{
			"warmPoolRef": object{"name": name},
			"lifecycle":   object{"shutdownTime": time.Now().Add(mostSeconds * time.Second).UTC().Format(time.RFC3339), "shutdownPolicy": "Delete"},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("its claim: %w", refused(err))
	}
	owner := reference(version, claimKind, made)
	meta = object{"name": name, "labels": labels, "ownerReferences": []object{owner}}
	if _, err := create(ctx, c.templates, object{
		"apiVersion": version, "kind": "SandboxTemplate", "metadata": meta,
		// The policy of the network is the policy of all pods of sandboxes.
		"spec": object{"podTemplate": object{"metadata": object{"labels": labels}, "spec": pod["spec"]}, "service": false, "networkPolicyManagement": "Unmanaged"},
	}); err != nil {
		return nil, fmt.Errorf("its template: %w", refused(err))
	}
	if _, err := create(ctx, c.pools, object{
		"apiVersion": version, "kind": "SandboxWarmPool", "metadata": meta,
		"spec": object{"replicas": 0, "sandboxTemplateRef": object{"name": name}},
	}); err != nil {
		return nil, fmt.Errorf("its pool: %w", refused(err))
	}
	return owner, nil
}

func (c claims) absent(ctx context.Context, name string) (string, bool) {
	s, err := get(ctx, c.claims, name)
	switch {
	case errors.Is(err, errNotFound):
		return "its claim was deleted, by another process or at its end", true
	case err != nil:
		return err.Error(), false
	case s.Metadata.DeletionTimestamp != nil:
		return "its claim is being deleted, by another process or at its end", true
	}
	for _, cond := range s.Status.Conditions {
		if cond.Type == "Ready" && cond.Status == "False" {
			return fmt.Sprintf("the claim waits: %s: %s", cond.Reason, cond.Message), false
		}
	}
	return "the claim waits without a condition: check that the controller of agent-sandbox runs with its extensions, or set the mode " + ModePod, false
}

// list also returns claims that have no pod yet.
func (c claims) list(ctx context.Context, selector string) ([]seen, error) {
	// In this order, as a claim exists before its pod.
	asked, err := list(ctx, c.claims, selector)
	if err != nil {
		return nil, err
	}
	all, err := list(ctx, c.pods, selector)
	if err != nil {
		return nil, err
	}
	there := make(map[string]bool)
	for _, p := range all {
		there[p.Metadata.Name] = true
	}
	return append(all, slices.DeleteFunc(asked, func(s seen) bool { return there[s.Metadata.Name] })...), nil
}

// remove deletes the claim and with it the pod. A pod without a claim was created directly.
func (c claims) remove(ctx context.Context, name string) error {
	if was, err := remove(ctx, c.claims, name); was || err != nil {
		return err
	}
	return c.direct.remove(ctx, name)
}

// servesClaims reports whether the API server has the API of claims.
func servesClaims(ctx context.Context, client rest.Interface) (bool, error) {
	path := "/apis/" + claimGroup + "/" + claimVersion
	data, err := client.Get().AbsPath(path).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask for %s: %w", path, err)
	}
	var served struct{ Resources []struct{ Name string } }
	if err := json.Unmarshal(data, &served); err != nil {
		return false, fmt.Errorf("what the API server says of %s: %w", path, err)
	}
	for _, plural := range []string{claimPlural, poolPlural, templatePlural} {
		if !slices.ContainsFunc(served.Resources, func(r struct{ Name string }) bool { return r.Name == plural }) {
			return false, nil
		}
	}
	return true, nil
}
