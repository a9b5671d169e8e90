//go:build e2e && linux

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

func init() {
	children["keeper"] = func() error { node.Main(keeper()); return nil }
}

// keeper is an agent that recalls notes, and writes some with a tool.
func keeper() flow.Registration {
	note := flow.WorkflowTool("note", "Keeps a note.", flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		last, _ := s.At(s.Len() - 1)
		uri, err := flow.Remember(ctx, "team", "keys", last.Text())
		return s.With(session.AssistantText("noted as " + uri)), err
	}))
	return flow.Registration{Name: "keeper", Revision: "1", NewFor: func(st flow.Info) (flow.Workflow, error) {
		agent := &flow.Agent{
			Name: "keeper", Prompt: "You keep keys.", Memory: "team", Tools: []tool.Tool{note},
			Provider: llm.Provider{Kind: "openai", Model: "m", BaseURL: os.Getenv("OPENAI_BASE_URL"), KeyRef: openai.EnvKey},
		}
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			return agent.Forward(ctx, s.With(session.UserText(string(st.Input))))
		}), nil
	}}
}

// keeperScript answers for the agent, which has the place only from its note.
const keeperScript = `
-- note --
contains: Mind the key
not result: note
call: note {"input":"The key hangs behind the blue door."}

-- noted --
contains: Mind the key
tool: noted
text: I have noted it.

-- found --
contains: Where is the key
contains: behind the blue door
text: It is behind the blue door.

-- unknown --
contains: Where is the key
text: I do not know.
`

// TestNoteOfAKilledNode: a note that an agent wrote by a tool on one node is recalled on
// another one, which starts after the first was killed; a client finds it too, and a
// program in JavaScript that writes one.
func TestNoteOfAKilledNode(t *testing.T) {
	d := startDev(t)
	self := must.Get(os.Executable())(t)
	listen := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
	models := d.start("models", "serve", "--script", d.file("keeper.txtar", keeperScript), "--listen", listen)
	models.until("model", func() bool { return strings.Contains(models.stdout.String(), "OPENAI_BASE_URL") })
	member := func(name string) *job {
		of := *d
		of.dir = t.TempDir()
		of.env = append([]string{childEnv + "=keeper", "OPENAI_API_KEY=none", "OPENAI_BASE_URL=http://" + listen + "/v1"}, d.env...)
		j := of.begin(exec.Command(self, "-dev", filepath.Join(d.dir, ".rath"), "-name", name, "-pool", "keepers", "-model", "m"))
		j.until("node", func() bool { return strings.Contains(j.stderr.String(), "is up") })
		return j
	}
	a := member("a")
	d.rath("run", "keeper", "-m", "Mind the key.", "-q").want(t, 0, "I have noted it.")
	a.signal(syscall.SIGKILL)
	a.wait()
	member("b")
	d.rath("run", "keeper", "-m", "Where is the key?", "-q").want(t, 0, "It is behind the blue door.")
	d.rath("memory", "find", "team", "which door?").want(t, 0, "The key hangs behind the blue door.", "memory://user/memories/keys/")

	js := installJS(t)
	program := filepath.Join(js, "notes.mjs")
	must.Do(t, os.WriteFile(program, []byte(blockOf(t, clientsPage, document(t, clientsPage), "js", 1)), 0o644))
	if out := d.program("node", program); !strings.Contains(out, "done: true") || !strings.Contains(out, "Slugs skip empty words.") {
		t.Errorf("node notes.mjs says %s", out)
	}
	d.rath("memory", "export", "team").want(t, 0, `"text":"Slugs skip empty words.","origin":{"user":"anonymous"}`)
}
