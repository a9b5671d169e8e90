package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rathcluster/rath/sandbox"
)

// cluster is the client of the API server, for one namespace.
type cluster struct {
	maker
	namespace     string
	pods, secrets dynamic.ResourceInterface
	reviews       dynamic.ResourceInterface // of this account's rights; without a namespace
}

// namespaceFile has the namespace of the pod that this process runs in.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// requestPatience bounds one request to the API server.
const requestPatience = 30 * time.Second

func checkMode(mode string) error {
	if mode != "" && mode != ModePod && mode != ModeClaim {
		return fmt.Errorf("no such way to make pods: %q; RATH_SANDBOX_KUBERNETES_MODE is %s or %s, or empty for claims where there are some", mode, ModePod, ModeClaim)
	}
	return nil
}

// connect loads the configuration of the API server's client. If the mode is open, it
// queries the server for the API of claims.
func connect(ctx context.Context, kubeconfig, namespace, mode string) (*cluster, error) {
	if err := checkMode(mode); err != nil {
		return nil, err
	}
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		if config, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("the service account of this pod: %w; mount its token, or name a kubeconfig", err)
		}
		if namespace == "" {
			text, err := os.ReadFile(namespaceFile)
			if err != nil {
				return nil, fmt.Errorf("%w; name a namespace", err)
			}
			namespace = strings.TrimSpace(string(text))
		}
	} else {
		named := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}, nil)
		if config, err = named.ClientConfig(); err != nil {
			return nil, fmt.Errorf("the kubeconfig %s: %w", kubeconfig, err)
		}
		if namespace == "" {
			if namespace, _, err = named.Namespace(); err != nil {
				return nil, fmt.Errorf("the kubeconfig %s: %w", kubeconfig, err)
			}
		}
	}
	// Opening a sandbox takes about ten requests.
	config.QPS, config.Burst, config.Timeout = 100, 200, requestPatience
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	of := func(group, version, resource string) dynamic.ResourceInterface {
		return client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}).Namespace(namespace)
	}
	c := &cluster{namespace: namespace, pods: of("", "v1", "pods"), secrets: of("", "v1", "secrets")}
	c.reviews = client.Resource(schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"})
	c.maker = direct{c.pods}
	if mode == ModePod {
		return c, nil
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme())
	plain, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	served, err := servesClaims(ctx, plain)
	switch {
	case err != nil:
		return nil, err
	case served:
		c.maker = claims{c.maker.(direct), of(claimGroup, claimVersion, claimPlural), of(claimGroup, claimVersion, poolPlural), of(claimGroup, claimVersion, templatePlural)}
	case mode == ModeClaim:
		return nil, fmt.Errorf("%w: the API server has no %s/%s; install agent-sandbox with its extensions, or set the mode %s", sandbox.ErrUnsupported, claimGroup, claimVersion, ModePod)
	}
	return c, nil
}

// object is an object of the API.
type object = map[string]any

// create creates an object, and returns its state.
func create(ctx context.Context, in dynamic.ResourceInterface, o object, dryRun ...string) (seen, error) {
	u, err := createObject(ctx, in, o, dryRun...)
	if err != nil {
		return seen{}, err
	}
	return see(u)
}

func createObject(ctx context.Context, in dynamic.ResourceInterface, o object, dryRun ...string) (*unstructured.Unstructured, error) {
	// The client requires numbers as decoded from JSON.
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	return in.Create(ctx, &u, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun})
}

// pod returns the state of a pod; errNotFound.
func (c *cluster) pod(ctx context.Context, name string) (seen, error) { return get(ctx, c.pods, name) }

// refused explains why the API server rejects a pod.
func refused(err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "PodSecurity"):
		return fmt.Errorf("%w; pods of sandboxes satisfy \"restricted\" of Pod Security: check the further rules of the namespace", err)
	case strings.Contains(text, "exceeded quota"), strings.Contains(text, "failed quota"):
		return fmt.Errorf("%w; raise the quota of the namespace, or name limits that fit", err)
	case strings.Contains(text, "RuntimeClass"):
		return fmt.Errorf("%w; make the runtime class, or name one that the cluster has", err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w; create the namespace, or name an existing one", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; the node's service account needs the role that the chart has for sandboxes", err)
	}
	return err
}

// seen is the state of a pod as the API server reports it.
type seen struct {
	Metadata struct {
		Name, UID         string
		Labels            map[string]string
		CreationTimestamp time.Time
		DeletionTimestamp *time.Time
	}
	Status struct {
		Phase, Reason, Message, PodIP string
		Conditions                    []struct{ Type, Status, Reason, Message string }
		InitContainerStatuses         []container
		ContainerStatuses             []container
	}
}

// container is the state of a container.
type container struct {
	Name, Image, ImageID string
	State                struct {
		Waiting    *struct{ Reason, Message string }
		Running    *struct{}
		Terminated *struct {
			ExitCode        int
			Reason, Message string
		}
	}
}

func see(u *unstructured.Unstructured) (s seen, err error) {
	data, err := u.MarshalJSON()
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(data, &s)
}

// ended reports whether a pod no longer runs and will not run.
func (s seen) ended() bool {
	return s.Metadata.DeletionTimestamp != nil || s.Status.Phase == "Succeeded" || s.Status.Phase == "Failed"
}

// running reports whether the container of commands runs.
func (s seen) running() bool {
	return !s.ended() && s.Status.PodIP != "" && len(s.Status.ContainerStatuses) == 1 && s.Status.ContainerStatuses[0].State.Running != nil
}

// hopeless are the reasons of a waiting container that do not resolve by themselves, with a
// remedy for each.
var hopeless = map[string]string{
	"ImagePullBackOff":     "name an image that the cluster's machines can pull, or secrets to pull it with",
	"ErrImageNeverPull":    "name an image that the cluster's machines have or can pull",
	"InvalidImageName":     "name it as NAME@sha256:DIGEST",
	"CreateContainerError": "check the image and the runtime class",
	"RunContainerError":    "check the image and the runtime class",
	"CrashLoopBackOff":     "check the log of the container",
}

// outOfMemory reports whether a pod ended because the memory of its commands ran out: where
// the kernel kills all processes of a container at once, or the daemon. A pod that is being
// deleted does not count.
func (s seen) outOfMemory() bool {
	return s.Metadata.DeletionTimestamp == nil && slices.ContainsFunc(s.Status.ContainerStatuses, func(c container) bool {
		return c.State.Terminated != nil && c.State.Terminated.Reason == "OOMKilled"
	})
}

// trouble returns why a pod does not run. final reports that it never will.
func (s seen) trouble() (why string, final bool) {
	for _, c := range append(s.Status.InitContainerStatuses, s.Status.ContainerStatuses...) {
		switch {
		case c.State.Waiting != nil:
			w := c.State.Waiting
			if remedy := hopeless[w.Reason]; remedy != "" {
				return fmt.Sprintf("container %s with image %s: %s: %s; %s", c.Name, c.Image, w.Reason, w.Message, remedy), true
			}
			if w.Reason != "" && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" {
				why = fmt.Sprintf("container %s: %s: %s", c.Name, w.Reason, w.Message)
			}
		case c.State.Terminated != nil:
			e := c.State.Terminated
			switch {
			case e.Reason == "OOMKilled":
				return fmt.Sprintf("container %s: its memory ran out (OOMKilled); raise the limit of memory", c.Name), true
			case e.ExitCode != 0:
				return fmt.Sprintf("container %s ended with code %d %s %s; see its log", c.Name, e.ExitCode, e.Reason, e.Message), true
			}
		}
	}
	switch {
	case s.Metadata.DeletionTimestamp != nil:
		return "it is being deleted, by another process or by its machine", true
	case s.Status.Reason == "Evicted":
		return fmt.Sprintf("it was evicted: %s; give sandboxes limits of memory and disk that the machines have room for", s.Status.Message), true
	case s.Status.Phase == "Failed":
		return fmt.Sprintf("it failed: %s %s", s.Status.Reason, s.Status.Message), true
	case s.Status.Phase == "Succeeded":
		return "it has ended", true
	}
	for _, c := range s.Status.Conditions {
		if c.Type == "PodScheduled" && c.Status == "False" {
			return fmt.Sprintf("%s: %s; give the cluster room, or sandboxes smaller limits", c.Reason, c.Message), false
		}
	}
	if why == "" {
		why = "it is " + s.Status.Phase
	}
	return why, false
}
