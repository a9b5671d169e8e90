package demo_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/internal/workflows/demo"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// TestCrashEverywhere stops the demo at every commit, before it is stored,
// after it is stored and after it is acknowledged.
func TestCrashEverywhere(t *testing.T) {
	data, err := os.ReadFile("script.txtar")
	if err != nil {
		t.Fatal(err)
	}
	data = regexp.MustCompile(`(?m)^(delay|gap): .*\n`).ReplaceAll(data, nil) // instant
	dir := t.TempDir()
	if err := demo.Unpack(dir); err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		data = fmt.Appendf(data, "-- work/%s --\n%s", name, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "demo.txtar")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	flowtest.CrashEverywhere(t, func() flow.Workflow { return demo.New(llm.Provider{}) }, session.New(session.UserText(demo.Input)), file, nil)
}
