package helm

import (
	"os"
	"regexp"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// secretsOf are the secrets that become variables of a container.
func secretsOf(c corev1.Container) []string {
	var names []string
	for _, from := range c.EnvFrom {
		if from.SecretRef != nil {
			names = append(names, from.SecretRef.Name)
		}
	}
	return names
}

// TestModelEnvironment holds that nodes, pools and routers have the same models, as the
// values of README.md set them, and that a role's own variable takes the common one's place.
func TestModelEnvironment(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n# values.yaml\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("README.md has no values.yaml")
	}
	v := with(t, parse(t, block[1]), "pools", []any{values{"name": "heavy", "envFrom": []any{values{"secretRef": values{"name": "own"}}}}})
	v = with(t, v, "model.name", "large")
	v = with(t, v, "model.env", []any{values{"name": "OPENAI_BASE_URL", "value": "https://common"}, values{"name": "REGION", "value": "north"}})
	v = with(t, v, "router.env", []any{values{"name": "OPENAI_BASE_URL", "value": "https://own"}})
	found := 0
	for _, w := range members(render(t, v)) {
		found++
		c := w.spec.Containers[0]
		if !slices.Contains(secretsOf(c), "model-keys") {
			t.Errorf("%s has variables of %v alone", w.name, secretsOf(c))
		}
		if own := w.name == "prod-rath-node-heavy"; own != slices.Contains(secretsOf(c), "own") {
			t.Errorf("%s has variables of %v", w.name, secretsOf(c))
		}
		if !slices.Contains(c.Args, "-model=large") {
			t.Errorf("%s has %v", w.name, c.Args)
		}
		set := map[string][]string{}
		for _, e := range c.Env {
			set[e.Name] = append(set[e.Name], e.Value)
		}
		want := "https://common"
		if w.role == "router" {
			want = "https://own"
		}
		if !slices.Equal(set["OPENAI_BASE_URL"], []string{want}) || !slices.Equal(set["REGION"], []string{"north"}) {
			t.Errorf("%s has %v", w.name, set)
		}
	}
	if found != 3 {
		t.Errorf("%d workloads", found)
	}
}
