package helm

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
)

// TestGolden compares the rendered cases with golden files, so that a change of a template
// shows its effects. Package node reads the same files.
func TestGolden(t *testing.T) {
	each(t, func(t *testing.T, all []object) {
		var b strings.Builder
		for _, o := range all {
			b.WriteString("---\n# Source: " + o.file + "\n" + o.yaml + "\n")
		}
		compare(t, filepath.Join("testdata", filepath.Base(t.Name())+".yaml"), b.String())
	})
}

// TestNotes compares the notes that users read after an installation.
func TestNotes(t *testing.T) {
	for name, v := range cases(t) {
		t.Run(name, func(t *testing.T) {
			out, err := files(t, v)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, filepath.Join("testdata", name+".txt"), out["rath/templates/NOTES.txt"])
		})
	}
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update rewrites it):\n%s", file, diff)
	}
}

// TestLint is `helm lint --strict` for each of the cases, and without any values.
func TestLint(t *testing.T) {
	all := cases(t)
	all["no values"] = values{}
	for name, v := range all {
		for _, m := range lint.RunAll(chartDir, clone(t, v), namespace).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// TestImage: the image has the programs that the pods start, and the user of the pods.
func TestImage(t *testing.T) {
	dockerfile, err := os.ReadFile(filepath.Join("..", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	build := regexp.MustCompile(`(?m)^\s*(\./cmd/.*)$`).FindSubmatch(dockerfile)
	if build == nil {
		t.Fatal("the Dockerfile builds no commands")
	}
	// No program takes the name of another one, such as Node.js.
	if got := string(build[1]); got != "./cmd/rath" {
		t.Errorf("the image is built from %s", got)
	}
	for _, w := range workloads(render(t, minimal(t))) {
		if c := w.spec.Containers[0].Command; c[0] != "rath" || w.role != "" && c[1] != w.role {
			t.Errorf("%s starts %q", w.name, c)
		}
		id := *w.spec.SecurityContext.RunAsUser
		if !strings.Contains(string(dockerfile), "\nUSER 65532:65532\n") || id != 65532 {
			t.Errorf("%s runs as %d, which is not the user of the image", w.name, id)
		}
	}
}
