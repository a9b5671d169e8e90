package helm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite testdata and the tables of README.md")

const (
	chartDir    = "rath"
	accountsDir = "accounts"
	releaseName = "prod"
	namespace   = "agents"
)

// values are the settings of a user.
type values = map[string]any

// object is one rendered Kubernetes object, decoded strictly.
type object struct {
	file string // the template that it is from
	yaml string
	meta metav1.Object
	kind string
	it   runtime.Object
}

func load(t testing.TB, dir string) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// toRender validates values against the schema and adds Helm's own values.
func toRender(t testing.TB, c *chart.Chart, v values) (common.Values, error) {
	t.Helper()
	release := common.ReleaseOptions{Name: releaseName, Namespace: namespace, Revision: 1, IsInstall: true}
	return util.ToRenderValues(c, clone(t, v), release, nil)
}

// clone copies values as Helm would read them from a file.
func clone(t testing.TB, v values) values {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, data)
}

func parse(t testing.TB, data []byte) values {
	t.Helper()
	var v values
	if err := yaml.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// files renders the chart of the fleet.
func files(t testing.TB, v values) (map[string]string, error) {
	t.Helper()
	return filesOf(t, chartDir, v)
}

// filesOf renders a chart and returns its non-empty template files by name.
func filesOf(t testing.TB, dir string, v values) (map[string]string, error) {
	t.Helper()
	c := load(t, dir)
	in, err := toRender(t, c, v)
	if err != nil {
		return nil, err
	}
	out, err := engine.Engine{Strict: true}.RenderWithContext(t.Context(), c, in)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(out, func(name, text string) bool {
		return strings.TrimSpace(text) == "" || strings.HasPrefix(path.Base(name), "_")
	})
	return out, nil
}

// render renders the chart of the fleet and decodes all objects.
func render(t testing.TB, v values) []object {
	t.Helper()
	return renderOf(t, chartDir, v)
}

func renderOf(t testing.TB, dir string, v values) []object {
	t.Helper()
	out, err := filesOf(t, dir, v)
	if err != nil {
		t.Fatal(err)
	}
	var all []object
	for _, name := range slices.Sorted(maps.Keys(out)) {
		if path.Ext(name) == ".txt" {
			continue
		}
		docs := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(out[name])))
		for {
			doc, err := docs.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if onlyComments(doc) {
				continue
			}
			all = append(all, decode(t, name, string(doc)))
		}
	}
	return all
}

// cases are the values of rath/ci by name.
func cases(t testing.TB) map[string]values {
	t.Helper()
	return casesOf(t, chartDir)
}

func casesOf(t testing.TB, dir string) map[string]values {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "ci", "*-values.yaml"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no values in %s/ci: %v", dir, err)
	}
	all := map[string]values{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(name), "-values.yaml")] = parse(t, data)
	}
	return all
}

// each runs a test on the rendered objects of each case.
func each(t *testing.T, test func(t *testing.T, all []object)) {
	for name, v := range cases(t) {
		t.Run(name, func(t *testing.T) { test(t, render(t, v)) })
	}
}

// with returns a copy of the values with one of them set: "node.slots".
func with(t testing.TB, v values, at string, to any) values {
	t.Helper()
	v = clone(t, v)
	keys := strings.Split(at, ".")
	m := v
	for _, k := range keys[:len(keys)-1] {
		next, ok := m[k].(values)
		if !ok {
			next = values{}
			m[k] = next
		}
		m = next
	}
	m[keys[len(keys)-1]] = to
	return v
}

func minimal(t testing.TB) values { return cases(t)["minimal"] }

func onlyComments(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		if l := bytes.TrimSpace(line); len(l) > 0 && l[0] != '#' && !bytes.Equal(l, []byte("---")) {
			return false
		}
	}
	return true
}
