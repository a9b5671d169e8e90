package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rathcluster/rath/internal/sandbox/execd"
)

// right is a verb that a node needs for a resource.
type right struct{ group, resource, verb string }

func (r right) String() string {
	if r.group == "" {
		return r.verb + " " + r.resource
	}
	return r.verb + " " + r.resource + "." + r.group
}

// rights returns the rights in the namespace that this package needs.
func (c *cluster) rights() (all []right) {
	life := []string{"create", "get", "list", "delete"}
	for _, verb := range life {
		all = append(all, right{"", "pods", verb})
	}
	all = append(all, right{"", "secrets", "create"})
	if c.name() != ModeClaim {
		return all
	}
	for _, verb := range life {
		all = append(all, right{claimGroup, claimPlural, verb})
	}
	return append(all, right{claimGroup, templatePlural, "create"}, right{claimGroup, poolPlural, "create"})
}

// Check tests, without creating any pod, whether pods can be created: the options are
// valid, the API server answers and grants the rights in the namespace, and it would accept
// such a pod with its runtime class. It returns a description, or an error with a remedy.
func Check(ctx context.Context, o Options) (found string, err error) { return newDriver(o).check(ctx) }

func (b *driver) check(ctx context.Context) (found string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	if err := cmp.Or(checkMode(b.o.Mode), b.checkImages()); err != nil {
		return "", fmt.Errorf("kubernetes: %w", err)
	}
	away := func(err error) error {
		return fmt.Errorf("kubernetes: the API server: %w; check the kubeconfig, the node's service account, and the network policy for the API server", err)
	}
	in, err := b.reach(ctx)
	if err != nil {
		return "", away(err)
	}
	var missing []string
	for _, r := range in.rights() {
		granted, err := in.may(ctx, r)
		if err != nil {
			return "", away(fmt.Errorf("ask for the right to %s: %w", r, err))
		}
		if !granted {
			missing = append(missing, r.String())
		}
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("kubernetes: namespace %s does not let this account %s; bind it to the role that the chart has for sandboxes", in.namespace, strings.Join(missing, ", "))
	}
	overhead, err := execd.Overhead()
	if err != nil {
		return "", fmt.Errorf("kubernetes: %w", err)
	}
	name := request{}.podName()
	pod := b.pod(name, name, cmp.Or(b.o.Program, "/rath"), request{image: b.o.Image, overhead: overhead})
	if _, err := create(ctx, in.pods, pod, metav1.DryRunAll); err != nil {
		return "", fmt.Errorf("kubernetes: namespace %s accepts no pod of a sandbox: %w", in.namespace, refused(err))
	}
	return fmt.Sprintf("namespace %s grants all %d rights and accepts a pod, made by %s, runtime class %s", in.namespace, len(in.rights()), in.name(), cmp.Or(b.o.RuntimeClass, "by default")), nil
}

// may reports whether the API server grants a right in the namespace.
func (c *cluster) may(ctx context.Context, r right) (bool, error) {
	u, err := createObject(ctx, c.reviews, object{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": object{"resourceAttributes": object{"namespace": c.namespace, "group": r.group, "resource": r.resource, "verb": r.verb}},
	})
	if err != nil {
		return false, err
	}
	status, ok := u.Object["status"].(object)
	if !ok {
		return false, errors.New("the review has no status")
	}
	granted, _ := status["allowed"].(bool)
	return granted, nil
}
