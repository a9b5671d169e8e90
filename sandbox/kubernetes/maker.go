package kubernetes

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
)

// maker creates and removes pods.
type maker interface {
	// name returns its Mode.
	name() string
	// begin requests a pod as described, and returns the owner of all its objects.
	begin(ctx context.Context, pod object) (owner object, err error)
	// absent returns why a requested pod does not exist. final reports that it never will.
	absent(ctx context.Context, name string) (why string, final bool)
	// list returns the pods that labels select, including requests without a pod yet.
	list(ctx context.Context, selector string) ([]seen, error)
	// remove deletes a pod and all its objects. A missing pod is no error.
	remove(ctx context.Context, name string) error
}

// direct creates pods directly.
type direct struct{ pods dynamic.ResourceInterface }

func (d direct) name() string { return ModePod }

func (d direct) begin(ctx context.Context, pod object) (object, error) {
	made, err := create(ctx, d.pods, pod)
	if err != nil {
		return nil, refused(err)
	}
	return reference("v1", "Pod", made), nil
}

func (d direct) absent(context.Context, string) (string, bool) {
	return "it was deleted, by another process or by its machine", true
}

func (d direct) list(ctx context.Context, selector string) ([]seen, error) {
	return list(ctx, d.pods, selector)
}

func (d direct) remove(ctx context.Context, name string) error {
	_, err := remove(ctx, d.pods, name)
	return err
}

// reference returns an entry of ownerReferences.
func reference(version, kind string, s seen) object {
	return object{"apiVersion": version, "kind": kind, "name": s.Metadata.Name, "uid": s.Metadata.UID}
}

// get returns the state of an object; errNotFound.
func get(ctx context.Context, in dynamic.ResourceInterface, name string) (seen, error) {
	u, err := in.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return seen{}, errNotFound
	}
	if err != nil {
		return seen{}, err
	}
	return see(u)
}

// list returns the objects that labels select.
func list(ctx context.Context, in dynamic.ResourceInterface, selector string) ([]seen, error) {
	all, err := in.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	var out []seen
	for i := range all.Items {
		s, err := see(&all.Items[i])
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// remove deletes an object, and reports whether it existed.
func remove(ctx context.Context, in dynamic.ResourceInterface, name string) (bool, error) {
	err := in.Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

var errNotFound = errors.New("not found")
