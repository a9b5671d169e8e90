package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/testkit/mcptest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestMCP: an agent has the tools of a server that its task names. A call during which
// the server dies is repeated if the server declares it read-only; otherwise the run
// waits for a person.
func TestMCP(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	script, err := scripted.Parse("mcp.txtar", fmt.Appendf(nil, `
-- note --
user: note
not result: s__note
call: s__note {"text":"noted","file":%q}

-- die --
user: perish
not result: s__die
call: s__die {"file":%q}

-- again --
user: again
not result: s__die_read_only
call: s__die_read_only {"file":%q,"unless":%q}

-- slow --
user: dig
not result: s__slow
call: s__slow {"unless":%q}

-- else --

done
`, file("note"), file("die"), file("again"), file("again"), file("dug")))
	must.Do(t, err)
	model, err := scripted.New(script, nil)
	must.Do(t, err)
	list := file("mcp.yaml")
	must.Do(t, os.WriteFile(list, []byte("servers:\n  s: {command: "+mcptest.Command("good")+", where: host}\n"), 0o600))
	n := begin(t, &Options{Store: file("store"), NATS: NATS{Level: "lazy"}, Models: Models{Source: model}, MCPList: list, Env: os.Getenv}).started(t)
	c, err := n.Client(t.Context())
	must.Do(t, err)
	defer c.Close()
	do := func(word string) messages.Result {
		t.Helper()
		r, err := c.Do(t.Context(), "agent", messages.Task{Input: json.RawMessage(`"` + word + `"`), MCP: []string{"s"}}, nil)
		if err != nil || r.State != run.Succeeded {
			t.Fatalf("%s: %+v, %v", word, r, err)
		}
		return r
	}
	if r := do("note"); strings.Join(toolTexts(t, c, r.Session), "") != `{"text":"noted"}` {
		t.Error(toolTexts(t, c, r.Session))
	}
	if r := do("again"); strings.Join(toolTexts(t, c, r.Session), "") != `{"text":"lives"}` {
		t.Error(toolTexts(t, c, r.Session))
	}
	for name, want := range map[string]string{"note": "noted\n", "again": "\n\n"} {
		if data, err := os.ReadFile(file(name)); err != nil || string(data) != want {
			t.Errorf("%s was called %q, %v; want %q", name, data, err, want)
		}
	}

	// The progress of a call can be watched.
	must.Get(c.Submit(t.Context(), "agent", messages.Task{ID: "digs", Input: json.RawMessage(`"dig"`), MCP: []string{"s"}}))(t)
	for end, said := time.Now().Add(soon), ""; said != "2 of 4: digging"; time.Sleep(10 * time.Millisecond) {
		v, err := c.Runs.Live(t.Context(), "digs")
		if err == nil && len(v.Steps) > 0 {
			said = v.Steps[0].Text
		}
		if time.Now().After(end) {
			t.Fatalf("it says %q: %+v, %v", said, v, err)
		}
	}
	must.Do(t, os.WriteFile(file("dug"), nil, 0o600))

	id := run.ID("dies")
	must.Get(c.Submit(t.Context(), "agent", messages.Task{ID: id, Input: json.RawMessage(`"perish"`), MCP: []string{"s"}}))(t)
	for end := time.Now().Add(soon); ; time.Sleep(20 * time.Millisecond) {
		v, err := c.Runs.Get(t.Context(), id)
		if err == nil && v.State == run.NeedsReview {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	if data, err := os.ReadFile(file("die")); err != nil || string(data) != "\n" {
		t.Errorf("die was called %q, %v; want once", data, err)
	}
	r, err := c.Do(t.Context(), "agent", messages.Task{Input: json.RawMessage(`"note"`), MCP: []string{"t"}}, nil)
	if err != nil || r.Code != run.CodeMalformed || !strings.Contains(r.Error, `mcp[0]: there is no MCP server "t"`) {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestMCPAsks: a server that asks during a call makes the run wait for a person, and
// gets the answer when the call is repeated, also by a node that started later. An
// answer of the wrong form is rejected. A call that is cut off after the answer is not
// repeated automatically.
func TestMCPAsks(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"good", "former"} {
		t.Run(kind, func(t *testing.T) { t.Parallel(); mcpAsks(t, kind) })
	}
}

func mcpAsks(t *testing.T, kind string) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	var text []byte
	for _, word := range []string{"plan", "no", "fatal"} {
		text = fmt.Appendf(text, "\n-- %[1]s --\nuser: %[1]s\nnot result: s__deploy\ncall: s__deploy {\"text\":%[1]q,\"file\":%[2]q}\n", word, file(word))
	}
	script, err := scripted.Parse("mcp.txtar", append(text, "\n-- else --\n\ndone\n"...))
	must.Do(t, err)
	model, err := scripted.New(script, nil)
	must.Do(t, err)
	list := file("mcp.yaml")
	must.Do(t, os.WriteFile(list, []byte("servers:\n  s: {command: "+mcptest.Command(kind)+", where: host}\n"), 0o600))
	start := func() (*Instance, *client.Client) {
		n := begin(t, &Options{Store: file("store"), NATS: NATS{Level: "lazy"}, Models: Models{Source: model}, MCPList: list, Env: os.Getenv}).started(t)
		c := must.Get(n.Client(t.Context()))(t)
		return n, c
	}
	n, c := start()
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(soon); !ok(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what + " did not come")
			}
		}
	}
	question := func(id run.ID, step run.Path) (q client.Question) {
		t.Helper()
		until("the question of "+string(id), func() bool {
			all, err := c.Questions.List(t.Context())
			if err != nil {
				return false
			}
			i := slices.IndexFunc(all, func(q client.Question) bool { return q.Run == id && q.Step == step })
			if i >= 0 {
				q = all[i]
			}
			return i >= 0
		})
		return q
	}
	submit := func(id run.ID) {
		t.Helper()
		must.Get(c.Submit(t.Context(), "agent", messages.Task{ID: id, Input: json.RawMessage(`"` + string(id) + `"`), MCP: []string{"s"}}))(t)
	}
	ended := func(id run.ID, want run.State) (r messages.RunInfo) {
		t.Helper()
		until("the end of "+string(id), func() bool {
			r, err = c.Runs.Get(t.Context(), id)
			return err == nil && r.State == want
		})
		return r
	}

	submit("plan")
	q := question("plan", "1.0.answer")
	says, _, err := c.Questions.Detail(t.Context(), q)
	if q.Title != "s__deploy asks: Deploy plan where?" || err != nil || says != `> Deploy plan where?
The call is made again, from its beginning, with the answer, which the session records in plain text.
A yes takes these values, as a JSON object:
  copies, integer, 2 if left out
  place, string of ["staging","production"], required: where to` {
		t.Errorf("%s\n%s\n%v", q.Title, says, err)
	}
	for _, value := range []string{``, `{"place":"moon"}`, `["staging"]`} {
		if err := c.Questions.Approve(t.Context(), "plan", messages.Control{Step: q.Step, Value: json.RawMessage(value)}); !errors.Is(err, run.ErrMalformed) {
			t.Errorf("values %s: %v", value, err)
		}
	}
	question("plan", q.Step)
	must.Do(t, c.Close())
	must.Do(t, n.Close())
	_, c = start()
	defer c.Close()
	must.Do(t, c.Questions.Approve(t.Context(), "plan", messages.Control{Step: q.Step, Value: json.RawMessage(`{"place":"staging"}`)}))
	r := ended("plan", run.Succeeded)
	if got := strings.Join(toolTexts(t, c, r.Session), ""); got != `{"text":"deploys 2 to staging"}` {
		t.Error(got)
	}

	submit("no")
	must.Do(t, c.Questions.Reject(t.Context(), "no", messages.Control{Step: question("no", "1.0.answer").Step, Reason: "not today"}))
	r = ended("no", run.Succeeded)
	if got := strings.Join(toolTexts(t, c, r.Session), ""); got != `{"text":"told to decline"}` {
		t.Error(got)
	}

	submit("fatal")
	must.Do(t, c.Questions.Approve(t.Context(), "fatal", messages.Control{Step: question("fatal", "1.0.answer").Step, Value: json.RawMessage(`{"place":"staging"}`)}))
	if r := ended("fatal", run.NeedsReview); r.Review == nil || r.Review.Step != "1.0.again" {
		t.Errorf("%+v", r.Review)
	}
	for name, want := range map[string]string{
		"plan": "begins begins deploys 2 to staging ", "no": "begins begins decline ", "fatal": "begins begins ",
	} {
		if data, err := os.ReadFile(file(name)); err != nil || strings.ReplaceAll(string(data), "\n", " ") != want {
			t.Errorf("%s: it did %q, %v; want %q", name, data, err, want)
		}
	}
}
