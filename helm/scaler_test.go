//go:build cluster

package helm

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// scaler plays KEDA: for a ScaledObject it creates a HorizontalPodAutoscaler as KEDA does,
// and serves its metric, which it queries from the address in the ScaledObject. Kubernetes'
// own autoscaler acts on the number.
type scaler struct {
	client kubernetes.Interface
	url    string // of the trigger
	at     string // where in the answer
}

// scaledObjects is the part of KEDA's definition of the kind that the server needs.
const scaledObjects = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: scaledobjects.keda.sh}
spec:
  group: keda.sh
  scope: Namespaced
  names: {plural: scaledobjects, singular: scaledobject, kind: ScaledObject, listKind: ScaledObjectList}
  versions:
    - name: v1alpha1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const externalMetrics = "/apis/external.metrics.k8s.io/v1beta1"

// newScaler makes the kind and the API of external metrics.
func newScaler(t *testing.T, client kubernetes.Interface) *scaler {
	t.Helper()
	s := &scaler{client: client}
	srv := httptest.NewTLSServer(s)
	t.Cleanup(srv.Close)
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	here := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "external-metrics"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}}
	if _, err := client.CoreV1().Services("default").Create(t.Context(), here, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	make := func(path, object string) {
		t.Helper()
		body, err := yaml.YAMLToJSON([]byte(object))
		if err != nil {
			t.Fatal(err)
		}
		if err := client.CoreV1().RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", scaledObjects)
	make("/apis/apiregistration.k8s.io/v1/apiservices", fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.external.metrics.k8s.io}
spec:
  group: external.metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: external-metrics, namespace: default, port: %s}
`, port))
	t.Cleanup(func() {
		ctx := context.Background()
		for _, path := range []string{
			"/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io",
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/scaledobjects.keda.sh",
			"/api/v1/namespaces/default/services/external-metrics",
		} {
			if err := client.CoreV1().RESTClient().Delete().AbsPath(path).Do(ctx).Error(); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// read reads a ScaledObject, and where its number is.
func (s *scaler) read(t *testing.T, name string) *ScaledObject {
	t.Helper()
	body, err := s.client.CoreV1().RESTClient().Get().AbsPath("/apis/keda.sh/v1alpha1/namespaces", namespace, "scaledobjects", name).Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var o ScaledObject
	if err := json.Unmarshal(body, &o); err != nil {
		t.Fatal(err)
	}
	s.url, s.at = o.Spec.Triggers[0].Metadata["url"], o.Spec.Triggers[0].Metadata["valueLocation"]
	return &o
}

// follow makes the autoscaler of a ScaledObject.
func (s *scaler) follow(t *testing.T, name string) {
	t.Helper()
	o := s.read(t, name)
	target, err := resource.ParseQuantity(o.Spec.Triggers[0].Metadata["targetValue"])
	if err != nil {
		t.Fatal(err)
	}
	hpa := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "keda-hpa-" + name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: o.Spec.ScaleTargetRef.APIVersion, Kind: o.Spec.ScaleTargetRef.Kind, Name: o.Spec.ScaleTargetRef.Name},
			MinReplicas:    o.Spec.MinReplicaCount, MaxReplicas: *o.Spec.MaxReplicaCount,
			Behavior: o.Spec.Advanced.HorizontalPodAutoscalerConfig.Behavior,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
				Metric: autoscalingv2.MetricIdentifier{Name: "s0-metric-api-" + s.at},
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &target},
			}}},
		},
	}
	if _, err := s.client.AutoscalingV2().HorizontalPodAutoscalers(namespace).Create(t.Context(), hpa, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// stop removes the autoscaler.
func (s *scaler) stop(t *testing.T, name string) {
	t.Helper()
	if err := s.client.AutoscalingV2().HorizontalPodAutoscalers(namespace).Delete(t.Context(), "keda-hpa-"+name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// value asks the address of the trigger at the first ready pod of its service.
func (s *scaler) value(ctx context.Context) (int64, error) {
	u, err := url.Parse(s.url)
	if err != nil {
		return 0, err
	}
	service, _, _ := strings.Cut(u.Hostname(), ".")
	ips, err := addresses(ctx, s.client, service, true)
	if err != nil {
		return 0, err
	}
	if len(ips) == 0 {
		return 0, fmt.Errorf("no pod of %s is ready", service)
	}
	u.Host = net.JoinHostPort(ips[0], u.Port())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var body map[string]any
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return 0, err
	}
	n, ok := body[s.at].(float64)
	if !ok {
		return 0, fmt.Errorf("%s: %v", answer.Status, body)
	}
	return int64(n), nil
}

// ServeHTTP answers the API server.
func (s *scaler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	answer := map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "external.metrics.k8s.io/v1beta1", "resources": []any{}}
	if r.URL.Path != externalMetrics {
		n, err := s.value(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		answer = map[string]any{"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": map[string]any{}, "items": []any{
			map[string]any{"metricName": "s0-metric-api-" + s.at, "metricLabels": map[string]string{}, "timestamp": time.Now().UTC().Format(time.RFC3339), "value": strconv.FormatInt(n, 10)},
		}}
	}
	_ = json.NewEncoder(w).Encode(answer) // the server asks again
}
