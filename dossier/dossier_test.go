package dossier_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/dossier"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file. What changes the rendering of old evidence
// makes old documents unverifiable.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got). If the change is meant, raise dossier.Layout (unless it was raised since the last release) and run with -update:\n%s", path, diff)
	}
}

func TestGolden(t *testing.T) {
	_, e := sample(t)
	for _, form := range []struct {
		name   string
		render func(*dossier.Evidence) ([]byte, error)
	}{{"fix.html", dossier.HTML}, {"fix.md", dossier.Markdown}, {"fix.json", (*dossier.Evidence).Encode}} {
		doc, err := form.render(e)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, form.name, doc)
		r, err := dossier.Verify(doc, nil)
		if err != nil {
			t.Fatalf("%s: %v", form.name, err)
		}
		t.Log(r)
	}
}
