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
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/workflows/demo"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// TestCrashEverywhere stops the demo at every commit, before it is stored,
// after it is stored and after it is acknowledged.
func TestCrashEverywhere(t *testing.T) {
	data := must.Get(os.ReadFile("script.txtar"))(t)
	data = regexp.MustCompile(`(?m)^(delay|gap): .*\n`).ReplaceAll(data, nil) // instant
	dir := t.TempDir()
	must.Do(t, demo.Unpack(dir))
	must.Do(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		data = fmt.Appendf(data, "-- work/%s --\n%s", name, text)
		return err
	}))
	file := filepath.Join(t.TempDir(), "demo.txtar")
	must.Do(t, os.WriteFile(file, data, 0o600))
	flowtest.CrashEverywhere(t, func() flow.Workflow { return demo.New(llm.Provider{}) }, session.New(session.UserText(demo.Input)), file, nil)
}
