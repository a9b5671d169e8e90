//go:build e2e && linux

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
)

// programs are other builds of this test program, as nodes and routers; each is built
// once. TestMain removes them.
var programs struct {
	mu  sync.Mutex
	dir string
	all map[string]string // by name
}

// nextVersion is what a node of the next release calls itself.
const nextVersion = "v9.9.0"

// module is the path of the module, in which the linker sets variables.
const module = "github.com/rathcluster/rath/"

// nextProgram returns the file of a build as the release after this one, see package
// internal/release.
func nextProgram(t *testing.T) string {
	return program(t, "next", "-tags=e2e,next", "-ldflags=-X "+module+"node.version="+nextVersion)
}

// programWithout returns the file of a build without a protection, see
// internal/protection.
func programWithout(t *testing.T, protection string) string {
	return program(t, protection, "-tags=e2e", "-ldflags=-X "+module+"internal/protection.without="+protection)
}

func program(t *testing.T, name string, flags ...string) string {
	t.Helper()
	programs.mu.Lock()
	defer programs.mu.Unlock()
	if file := programs.all[name]; file != "" {
		return file
	}
	if programs.dir == "" {
		var err error
		if programs.dir, err = os.MkdirTemp("", "rath-e2e-nodes-"); err != nil {
			t.Fatal(err)
		}
		programs.all = map[string]string{}
	}
	file := filepath.Join(programs.dir, name)
	args := append([]string{"test", "-c", "-vet=off", "-o", file}, flags...)
	if out, err := exec.CommandContext(t.Context(), "go", append(args, ".")...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	programs.all[name] = file
	return file
}

// common returns a message without the field that only the next release writes:
// two releases that tell the same result at the same time agree in the rest.
func common(data []byte) string {
	return strings.Replace(string(data), `,"zone":"next"}`, "}", 1)
}

func removePrograms() error { return os.RemoveAll(programs.dir) } // "" is nothing

// laterSchemas are the schemas of the next release, which knows one optional
// field more in the data of each event. Those of everything else allow fields
// that are unknown.
func laterSchemas(of fs.FS) (fs.FS, error) {
	const commit = "commit.v1.json"
	later := fstest.MapFS{}
	names, err := fs.Glob(of, "*.json")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := fs.ReadFile(of, name)
		if err == nil && name == commit {
			text, err = withField(text, "zone")
		}
		if err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
		later[name] = &fstest.MapFile{Data: text}
	}
	if later[commit] == nil {
		return nil, errors.New("there is no schema " + commit)
	}
	return later, nil
}

// withField adds an optional field to the events that a schema of commits
// defines.
func withField(schema []byte, field string) ([]byte, error) {
	var doc map[string]any
	if err := json.Unmarshal(schema, &doc); err != nil {
		return nil, err
	}
	defs, _ := doc["$defs"].(map[string]any)
	events := 0
	for kind, def := range defs {
		of, _ := def.(map[string]any)
		props, ok := of["properties"].(map[string]any)
		if !ok || !strings.Contains(kind, ".") {
			continue // not the data of an event, but a part of them
		}
		props[field] = map[string]any{"type": "string"}
		events++
	}
	if events == 0 {
		return nil, errors.New("it defines no events")
	}
	return json.Marshal(doc)
}
