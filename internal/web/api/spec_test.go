package api_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/web/api"
)

var update = flag.Bool("update", false, "rewrite the golden description")

// TestDescription: the description of the routes is the recorded one.
func TestDescription(t *testing.T) {
	a := must.Get(api.New(nil))(t)
	name := filepath.Join("testdata", "openapi.json")
	have := string(a.OpenAPI()) + "\n"
	if *update {
		must.Do(t, os.WriteFile(name, []byte(have), 0o644))
	}
	if want := must.Get(os.ReadFile(name))(t); have != string(want) {
		t.Errorf("the routes have another description than %s; -update rewrites it", name)
	}
}
