package examples_test

import (
	"flag"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/examples"
	"github.com/rathcluster/rath/examples/01-hello/hello"
	"github.com/rathcluster/rath/examples/10-provider/provider"
	"github.com/rathcluster/rath/examples/ladder"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/node"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) {
	ladder.Child(examples.Ladder()...)
	flowtest.Main(m)
}

// golden compares the outcome of an example with its golden file. With -update, it writes
// the file instead if write is set.
func golden(t *testing.T, file, got string, write bool) {
	t.Helper()
	if write && *update {
		must.Do(t, os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want := must.Get(os.ReadFile(file))(t)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("it is not %s any more; if that is right, write it again with -update (-want +got):\n%s", file, diff)
	}
}

// TestInProcess runs each example as a program does that uses workflows as a library.
func TestInProcess(t *testing.T) {
	for _, r := range examples.Ladder() {
		t.Run(r.Dir, func(t *testing.T) {
			models := must.Get(ladder.Models(r))(t)
			story := must.Get(r.InProcess(t.Context(), models, "", io.Discard))(t)
			golden(t, filepath.Join("testdata", r.Dir+".txt"), ladder.Plain(story), true)
		})
	}
}

// TestNode runs all of them at one node, as a client does.
func TestNode(t *testing.T) {
	all := examples.Ladder()
	models := must.Get(ladder.Models(all...))(t)
	list := must.Get(ladder.Servers(t.TempDir(), nil, all...))(t)
	var offered []flow.Registration
	for _, r := range all {
		offered = append(offered, r.Registration())
	}
	n := must.Get(node.Start(t.Context(), &node.Options{Store: t.TempDir(), Models: node.Models{Source: models}, MCPList: list, Workflows: offered, Sandbox: node.Sandbox{Unsafe: true}}))(t)
	t.Cleanup(func() { must.Report(t, n.Close()) })
	c := must.Get(n.Client(t.Context()))(t)
	t.Cleanup(func() { must.Report(t, c.Close()) })
	for _, r := range all {
		t.Run(r.Dir, func(t *testing.T) {
			story := must.Get(r.Submit(t.Context(), c, "", "", nil))(t)
			golden(t, filepath.Join("testdata", r.Dir+".txt"), ladder.Plain(story), false)
		})
	}
}

// TestStreams: the pieces that a node's client gets while the model speaks add up to the
// answer.
func TestStreams(t *testing.T) {
	t.Setenv("OPENAI_DEFAULT_MODEL", "")
	for _, r := range examples.Ladder() {
		if !r.Streams {
			continue
		}
		var out strings.Builder
		must.Do(t, r.Play(t.Context(), &out, io.Discard))
		pieces, story, _ := strings.Cut(out.String(), "SESSION\n")
		golden(t, filepath.Join("testdata", r.Dir+".pieces.txt"), pieces, true)
		golden(t, filepath.Join("testdata", r.Dir+".txt"), "SESSION\n"+ladder.Plain(story), false)
	}
}

// TestRealModel: a model in the environment replaces the script, and the program reports
// it.
func TestRealModel(t *testing.T) {
	script := must.Get(scripted.Parse("model", []byte("-- any --\n\nI am another model.\n")))(t)
	m := must.Get(scripted.New(script, nil))(t)
	server := httptest.NewServer(m)
	defer server.Close()
	t.Setenv("OPENAI_BASE_URL", server.URL+"/v1")
	t.Setenv("OPENAI_API_KEY", "none")
	t.Setenv("OPENAI_DEFAULT_MODEL", scripted.DefaultModel)
	for _, r := range []ladder.Rung{hello.Rung(), provider.Rung()} {
		var out, remarks strings.Builder
		must.Do(t, r.Play(t.Context(), &out, &remarks))
		says := r.Name + ": asks model scripted (OPENAI_DEFAULT_MODEL); unset it for the script\n"
		if !strings.Contains(out.String(), ": I am another model.\n") || remarks.String() != says {
			t.Errorf("%s says %q and %q", r.Dir, remarks.String(), out.String())
		}
	}
}

// TestPictures draws the graphs of the systems, as docs/tutorial.md shows them.
func TestPictures(t *testing.T) {
	for _, r := range examples.Ladder() {
		if !slices.Contains([]string{"trading", "engineering", "research"}, r.Dir) {
			continue
		}
		t.Run(r.Dir, func(t *testing.T) {
			models := must.Get(ladder.Models(r))(t)
			svg := must.Get(r.Picture(t.Context(), models))(t)
			golden(t, filepath.Join("..", "docs", "pictures", r.Dir+".svg"), svg+"\n", true)
		})
	}
}

// tutorial is the page that goes along the ladder.
const tutorial = "../docs/tutorial.md"

// excerpt matches a block of a page whose first line names the file that it is a part of.
var excerpt = regexp.MustCompile("(?ms)^```(?:go|text) (\\S+)\n(.*?)^```$")

// TestTutorial: each block of the tutorial is a part of a file that the tests compile or
// write, word for word, and the examples come in the order of the ladder.
func TestTutorial(t *testing.T) {
	page := must.Get(os.ReadFile(tutorial))(t)
	text := string(page)
	if all, named := strings.Count(text, "\n```"), len(excerpt.FindAllString(text, -1)); all != 2*named {
		t.Errorf("%d fences of blocks, and %d blocks name a file", all, named)
	}
	for _, m := range excerpt.FindAllStringSubmatch(text, -1) {
		file, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(m[1])))
		if err != nil {
			t.Errorf("a block is of %s: %v", m[1], err)
		} else if !strings.Contains("\n"+string(file), "\n"+m[2]) {
			t.Errorf("%s has no longer what the tutorial shows of it:\n%s", m[1], m[2])
		}
	}
	for _, r := range examples.Ladder() {
		command := "    go run ./examples/" + r.Dir + "\n"
		_, rest, ok := strings.Cut(text, command)
		if !ok {
			t.Fatalf("the tutorial has no %q, or not in the order of the ladder", command)
		}
		text = rest
	}
}
