package examples_test

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/examples"
	"github.com/rathcluster/rath/examples/internal/ladder"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/node"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) {
	ladder.Child(examples.Ladder()...)
	flowtest.Main(m)
}

// golden compares what an example came to with its file, and writes that first if write is
// set and the test was asked to.
func golden(t *testing.T, file, got string, write bool) {
	t.Helper()
	if write && *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("it is not %s any more; if that is right, write it again with -update (-want +got):\n%s", file, diff)
	}
}

// TestInProcess runs each example as a program does that uses workflows as a library.
func TestInProcess(t *testing.T) {
	for _, r := range examples.Ladder() {
		if r.Server != nil {
			continue // an agent with MCP servers needs a node: see TestNode
		}
		t.Run(r.Dir, func(t *testing.T) {
			models, err := ladder.Models(r)
			if err != nil {
				t.Fatal(err)
			}
			story, err := r.InProcess(t.Context(), models, "", io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", r.Dir+".txt"), ladder.Plain(story), true)
		})
	}
}

// TestNode runs all of them at one node, as a client does.
func TestNode(t *testing.T) {
	all := examples.Ladder()
	models, err := ladder.Models(all...)
	if err != nil {
		t.Fatal(err)
	}
	list, err := ladder.Servers(t.TempDir(), nil, all...)
	if err != nil {
		t.Fatal(err)
	}
	var offered []flow.Registration
	for _, r := range all {
		offered = append(offered, r.Registration())
	}
	n, err := node.Start(t.Context(), &node.Options{Store: t.TempDir(), Models: models, MCPList: list, Workflows: offered, Unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := n.Client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, r := range all {
		t.Run(r.Dir, func(t *testing.T) {
			story, err := r.Submit(t.Context(), c, "", "", nil)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", r.Dir+".txt"), ladder.Plain(story), r.Server != nil)
		})
	}
}
