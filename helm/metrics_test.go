package helm

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// PodMonitor and PrometheusRule have the fields of the objects of monitoring.coreos.com/v1
// that the chart uses.
type (
	PodMonitor struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Selector     metav1.LabelSelector `json:"selector"`
			TargetLabels []string             `json:"podTargetLabels"`
			Endpoints    []struct {
				Port string `json:"port"`
				Path string `json:"path"`
			} `json:"podMetricsEndpoints"`
		} `json:"spec"`
	}
	PrometheusRule struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Groups []struct {
				Name  string  `json:"name"`
				Rules []alert `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	alert struct {
		Alert       string            `json:"alert"`
		Expr        string            `json:"expr"`
		For         string            `json:"for,omitempty"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	}
)

// DeepCopyObject implements runtime.Object. Nothing here changes an object.
func (p *PodMonitor) DeepCopyObject() runtime.Object { c := *p; return &c }

// DeepCopyObject implements runtime.Object. Nothing here changes an object.
func (p *PrometheusRule) DeepCopyObject() runtime.Object { c := *p; return &c }

// documented are the series of docs/metrics.md by name, with their kinds: the program's
// own tests hold it to the program.
func documented(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(rath_[a-z_]+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = m[2]
		if m[2] == "histogram" {
			all[m[1]+"_bucket"] = "counter"
		}
	}
	if len(all) < 10 {
		t.Fatalf("docs/metrics.md lists %d series", len(all))
	}
	return all
}

// TestAlerts: each rule parses, uses series that the program exports and only those of this
// release, and describes the remedy.
func TestAlerts(t *testing.T) {
	known := documented(t)
	if n := len(of[*PrometheusRule](render(t, minimal(t)))); n != 0 {
		t.Errorf("%d rules without being asked for", n)
	}
	rule := one[*PrometheusRule](t, render(t, with(t, minimal(t), "metrics.alerts", true)))
	var names []string
	for _, g := range rule.Spec.Groups {
		for _, a := range g.Rules {
			if a.Alert == "" || slices.Contains(names, a.Alert) {
				t.Errorf("alert %q has no name of its own", a.Alert)
			}
			names = append(names, a.Alert)
			if a.Annotations["summary"] == "" || len(a.Annotations["runbook"]) < 30 || a.Labels["severity"] == "" {
				t.Errorf("%s lacks a summary, a runbook or a severity: %+v", a.Alert, a)
			}
			expr, err := parser.NewParser(parser.Options{}).ParseExpr(a.Expr)
			if err != nil {
				t.Errorf("%s: %v: %s", a.Alert, err, a.Expr)
				continue
			}
			series := 0
			parser.Inspect(expr, func(n parser.Node, path []parser.Node) error {
				v, ok := n.(*parser.VectorSelector)
				if !ok {
					return nil
				}
				series++
				kind := known[v.Name]
				_, ranged := path[len(path)-1].(*parser.MatrixSelector)
				if kind == "" || ranged != (kind == "counter") {
					t.Errorf("%s asks for %s, a %q, over a range: %v", a.Alert, v.Name, kind, ranged)
				}
				own, relays := 0, v.Name == "rath_relay_partitions" // of all releases of the fleet
				for _, m := range v.LabelMatchers {
					if m.Name == "namespace" && m.Matches(namespace) && !m.Matches("other") || m.Name == "pod" && m.Matches(releaseName+"-rath-node-0") && !m.Matches("other-rath-node-0") ||
						relays && m.Name == "rath_fleet" && m.Matches(releaseName+"-rath") && m.Matches("") && !m.Matches("other-rath") {
						own++
					}
				}
				if own != 2 {
					t.Errorf("%s asks for %s of other releases too", a.Alert, v.String())
				}
				return nil
			})
			if series == 0 {
				t.Errorf("%s asks for no series", a.Alert)
			}
		}
	}
	if len(names) < 8 {
		t.Errorf("the alerts are %s", strings.Join(names, ", "))
	}
}

// TestPodMonitor: it finds the port of all pods, which let Prometheus in.
func TestPodMonitor(t *testing.T) {
	all := render(t, with(t, minimal(t), "metrics.podMonitor", true))
	m := one[*PodMonitor](t, all)
	selector, err := metav1.LabelSelectorAsSelector(&m.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Spec.Endpoints) != 1 || m.Spec.Endpoints[0].Port != "health" || m.Spec.Endpoints[0].Path != "/metrics" {
		t.Errorf("it asks %+v", m.Spec.Endpoints)
	}
	if !slices.Equal(m.Spec.TargetLabels, []string{"rath/fleet"}) {
		t.Errorf("series get the labels %v of pods, and the alerts need rath/fleet", m.Spec.TargetLabels)
	}
	var roles []string
	for _, w := range members(all) {
		if selector.Matches(labels.Set(w.meta.Labels)) {
			roles = append(roles, w.role)
		}
	}
	if slices.Sort(roles); !slices.Equal(roles, []string{"node", "router"}) {
		t.Errorf("it selects the pods of %v", roles)
	}
}
