//go:build e2e && linux

package e2e

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// openAIModule is the client that the documents name, at the version of the transcript.
const openAIModule = "openai@6.49"

var updateOpenAI = flag.Bool("update", false, "rewrite the transcript of OpenAI's client")

var variable = regexp.MustCompile(`oai-[0-9a-f]{32}|http://127\.0\.0\.1:\d+`)

// TestOpenAI drives workflows with questions by OpenAI's client, and compares its transcript.
func TestOpenAI(t *testing.T) {
	t.Parallel()
	d, _, url := devPages(t, "127.0.0.1:0", nil)
	token := strings.TrimSpace(d.rath("token", "create", "--user", "ana", "--role", "client").stdout)
	token = regexp.MustCompile(`rath_\S+`).FindString(token)
	installModules(t, d.dir, d.env, openAIModule)
	d.file("hello.mjs", strings.Replace(firstBlock(t, "docs/openai.md", "js"), "Say hello.", "Try again.", 1)) // as the script has it
	d.file("openai.mjs", string(must.Get(os.ReadFile(filepath.Join("testdata", "openai.mjs")))(t)))
	d.env = append(d.env, "OPENAI_API_KEY="+token, "OPENAI_BASE_URL="+url+"/openai/v1")
	if out := d.program("node", "hello.mjs"); strings.TrimSpace(out) == "" {
		t.Error("the program of the document printed nothing")
	}
	names := map[string]string{}
	got := variable.ReplaceAllStringFunc(d.program("node", "openai.mjs"), func(text string) string {
		if strings.HasPrefix(text, "http") {
			return "URL"
		}
		if names[text] == "" {
			names[text] = "run" + string(rune('A'+len(names)))
		}
		return names[text]
	})
	file := filepath.Join("testdata", "openai.txt")
	if *updateOpenAI {
		must.Do(t, os.WriteFile(file, []byte(got), 0o644))
	}
	if want := string(must.Get(os.ReadFile(file))(t)); got != want {
		t.Errorf("the transcript is\n%s\nwant\n%s", got, want)
	}
}
