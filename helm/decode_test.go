package helm

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// ScaledObject has the fields of KEDA's object, keda.sh/v1alpha1, that the chart uses.
type ScaledObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ScaledObjectSpec `json:"spec"`
}

type ScaledObjectSpec struct {
	ScaleTargetRef struct {
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
		Name       string `json:"name"`
	} `json:"scaleTargetRef"`
	PollingInterval *int32 `json:"pollingInterval,omitempty"`
	MinReplicaCount *int32 `json:"minReplicaCount,omitempty"`
	MaxReplicaCount *int32 `json:"maxReplicaCount,omitempty"`
	Advanced        struct {
		HorizontalPodAutoscalerConfig struct {
			Behavior *autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior,omitempty"`
		} `json:"horizontalPodAutoscalerConfig"`
	} `json:"advanced"`
	Triggers []ScaleTrigger `json:"triggers"`
}

// ScaleTrigger has metadata that KEDA reads as text.
type ScaleTrigger struct {
	Type     string            `json:"type"`
	Name     string            `json:"name,omitempty"`
	Metadata map[string]string `json:"metadata"`
}

// DeepCopyObject implements runtime.Object. Nothing here changes an object.
func (s *ScaledObject) DeepCopyObject() runtime.Object { c := *s; return &c }

// allowed are the kinds that the chart may render, at the versions that current
// clusters serve; the scheme would accept old ones.
var allowed = []schema.GroupVersionKind{
	appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
	appsv1.SchemeGroupVersion.WithKind("Deployment"),
	batchv1.SchemeGroupVersion.WithKind("Job"),
	corev1.SchemeGroupVersion.WithKind("Service"),
	corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	corev1.SchemeGroupVersion.WithKind("Secret"),
	corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	corev1.SchemeGroupVersion.WithKind("Pod"),
	policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
	networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
	networkingv1.SchemeGroupVersion.WithKind("Ingress"),
	rbacv1.SchemeGroupVersion.WithKind("Role"),
	rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
	kedaVersion.WithKind("ScaledObject"),
	monitoringVersion.WithKind("PodMonitor"),
	monitoringVersion.WithKind("PrometheusRule"),
}

var monitoringVersion = schema.GroupVersion{Group: "monitoring.coreos.com", Version: "v1"}

var kedaVersion = schema.GroupVersion{Group: "keda.sh", Version: "v1alpha1"}

var strict = func() runtime.Decoder {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme, policyv1.AddToScheme, networkingv1.AddToScheme, rbacv1.AddToScheme} {
		utilruntime.Must(add(s))
	}
	s.AddKnownTypeWithName(kedaVersion.WithKind("ScaledObject"), &ScaledObject{})
	s.AddKnownTypeWithName(monitoringVersion.WithKind("PodMonitor"), &PodMonitor{})
	s.AddKnownTypeWithName(monitoringVersion.WithKind("PrometheusRule"), &PrometheusRule{})
	return json.NewSerializerWithOptions(json.DefaultMetaFactory, s, s, json.SerializerOptions{Yaml: true, Strict: true})
}()

// decode reads an object as strictly as a server with strict field validation:
// an unknown or repeated field and a wrong type are errors.
func decode(t testing.TB, file, doc string) object {
	t.Helper()
	it, gvk, err := strict.Decode([]byte(doc), nil, nil)
	if err != nil {
		t.Fatalf("%s: %v\n%s", file, err, doc)
	}
	if !slices.Contains(allowed, *gvk) {
		t.Errorf("%s: %s is not a kind that the chart may have", file, gvk)
	}
	meta, ok := it.(metav1.Object)
	if !ok {
		t.Fatalf("%s: %s has no metadata", file, gvk)
	}
	return object{file: file, yaml: strings.TrimSpace(doc), meta: meta, kind: gvk.Kind, it: it}
}

// of returns the objects of a type.
func of[T runtime.Object](all []object) []T {
	var out []T
	for _, o := range all {
		if it, ok := o.it.(T); ok {
			out = append(out, it)
		}
	}
	return out
}

// one returns the only object of a type.
func one[T runtime.Object](t testing.TB, all []object) T {
	t.Helper()
	found := of[T](all)
	if len(found) != 1 {
		t.Fatalf("%d objects of type %T, want 1", len(found), *new(T))
	}
	return found[0]
}

// workload is a pod, or an object that creates pods.
type workload struct {
	name     string
	role     string // node, router, or empty for a test, a job or a toolbox
	replicas *int32
	selector *metav1.LabelSelector // nil for a pod
	meta     metav1.ObjectMeta
	spec     corev1.PodSpec
}

func workloads(all []object) []workload {
	var out []workload
	for _, s := range of[*appsv1.StatefulSet](all) {
		out = append(out, workload{s.Name, "node", s.Spec.Replicas, s.Spec.Selector, s.Spec.Template.ObjectMeta, s.Spec.Template.Spec})
	}
	for _, d := range of[*appsv1.Deployment](all) {
		role := "router"
		if strings.HasSuffix(d.Name, "-toolbox") {
			role = ""
		}
		out = append(out, workload{d.Name, role, d.Spec.Replicas, d.Spec.Selector, d.Spec.Template.ObjectMeta, d.Spec.Template.Spec})
	}
	for _, j := range of[*batchv1.Job](all) {
		out = append(out, workload{j.Name, "", nil, nil, j.Spec.Template.ObjectMeta, j.Spec.Template.Spec})
	}
	for _, p := range of[*corev1.Pod](all) {
		out = append(out, workload{p.Name, "", nil, nil, p.ObjectMeta, p.Spec})
	}
	return out
}

// members are the workloads that make up the fleet.
func members(all []object) []workload {
	return slices.DeleteFunc(workloads(all), func(w workload) bool { return w.role == "" })
}
