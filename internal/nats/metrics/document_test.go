package metrics

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// scrape returns the metrics as a server answers them.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("status %d, %v: %s", w.Code, err, body)
	}
	return string(body)
}

// TestDocument: docs/metrics.md lists the series that there are, in the same order and
// words.
func TestDocument(t *testing.T) {
	text := must.Get(os.ReadFile(filepath.Join("..", "..", "..", "docs", "metrics.md")))(t)
	var written, want []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| `rath_") {
			written = append(written, strings.TrimSpace(line))
		}
	}
	for _, d := range Series() {
		labels := ""
		if len(d.Labels) > 0 {
			labels = "`" + strings.Join(d.Labels, "`, `") + "`"
		}
		want = append(want, fmt.Sprintf("| `%s` | %s | %s | %s |", d.Name, d.Kind, labels, d.Help))
	}
	if diff := cmp.Diff(want, written); diff != "" {
		t.Errorf("docs/metrics.md says otherwise (-program +document):\n%s", diff)
	}
}

// TestRegistered: a scrape returns exactly the described series.
func TestRegistered(t *testing.T) {
	m := New("v1")
	m.Observe(func() State { return full(0) })
	got := map[string]string{}
	for _, f := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(scrape(t, m), -1) {
		got[f[1]] = f[2]
	}
	for _, d := range Series() {
		if got[d.Name] != string(d.Kind) {
			t.Errorf("%s is a %q, and described as a %s", d.Name, got[d.Name], d.Kind)
		}
		delete(got, d.Name)
	}
	for name := range got {
		t.Errorf("%s is not described", name)
	}
}

// TestNames: the document around its table names no series that the program does not
// have.
func TestNames(t *testing.T) {
	var known []string
	for _, d := range Series() {
		known = append(known, d.Name)
		if d.Kind == Histogram {
			known = append(known, d.Name+"_bucket", d.Name+"_sum", d.Name+"_count")
		}
	}
	for _, file := range []string{"docs/metrics.md"} {
		text := must.Get(os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(file))))(t)
		names := regexp.MustCompile(`\brath_[a-z_]+`).FindAllString(string(text), -1)
		if len(names) == 0 {
			t.Errorf("%s names no series: the test shows nothing", file)
		}
		for _, name := range names {
			if !slices.Contains(known, name) {
				t.Errorf("%s names %s, which the program does not have", file, name)
			}
		}
	}
}
