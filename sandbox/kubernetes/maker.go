package kubernetes

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
)

// maker is how a pod comes to be, and ends.
type maker interface {
	// name is the Mode that it is of.
	name() string
	// begin asks for a pod as described, and returns what owns all that belongs to it.
	begin(ctx context.Context, pod object) (owner object, err error)
	// absent says why there is no pod that was asked for: final if there will be none.
	absent(ctx context.Context, name string) (why string, final bool)
	// list returns what labels select, with or without a pod yet.
	list(ctx context.Context, selector string) ([]seen, error)
	// remove ends a pod and all that belongs to it; that there is none is no error.
	remove(ctx context.Context, name string) error
}

// direct makes pods as such.
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

// reference is an entry of ownerReferences.
func reference(version, kind string, s seen) object {
	return object{"apiVersion": version, "kind": kind, "name": s.Metadata.Name, "uid": s.Metadata.UID}
}

// get returns what is known of an object; errNotFound.
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

// remove deletes an object, and reports whether it was there.
func remove(ctx context.Context, in dynamic.ResourceInterface, name string) (bool, error) {
	err := in.Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

var errNotFound = errors.New("not found")
