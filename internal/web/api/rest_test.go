package api_test

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }

func (d *door) testSessions(t *testing.T) {
	var g messages.Graph
	if d.get(t, "/api/v1/sessions?limit=2", &g); len(g.Roots) == 0 || g.Next == 0 {
		t.Errorf("%+v", g)
	}
	var s messages.Session
	d.get(t, "/api/v1/sessions/chat?limit=1", &s)
	if s.Total < 2 || len(s.Chunks) != 1 || s.Next == 0 {
		t.Fatalf("%+v", s)
	}
	id := string(s.Session)
	if d.get(t, "/api/v1/sessions/"+id+"?version=1&after=0", &s); s.Version != 1 {
		t.Errorf("%+v", s)
	}
	d.get(t, "/api/v1/sessions/"+id+"/tree?picture=text", &g)
	if len(g.Tree) == 0 || g.Picture == "" {
		t.Errorf("%+v", g)
	}
	var l messages.LineagePage
	d.get(t, "/api/v1/sessions/"+id+"/lineage?limit=3", &l)
	if len(l.Records) == 0 || !l.More {
		t.Errorf("%+v", l)
	}
	d.get(t, "/api/v1/lineage?limit=2&after="+url.QueryEscape(l.Next), &l)
	var c messages.Commits
	if d.get(t, "/api/v1/sessions/"+id+"/commits", &c); len(c.Commits) == 0 {
		t.Errorf("%+v", c)
	}
	var why struct{ What, Agent, Did string }
	for _, path := range []string{"runs/first/why", "sessions/" + id + "/why", "sessions/" + id + "/why?version=2", "sessions/" + id + "/why?row=1"} {
		if d.get(t, "/api/v1/"+path, &why); why.What == "" {
			t.Errorf("%s: %+v", path, why)
		}
	}
	if why.Agent != "talker" {
		t.Errorf("row 1: %+v", why)
	}
	var i struct{ Sessions []any }
	if d.get(t, "/api/v1/sessions/"+id+"/impact?version=1", &i); len(i.Sessions) == 0 {
		t.Errorf("%+v", i)
	}
	for _, form := range []string{"html", "md", "json"} {
		a := d.ask(t, ann, "GET", "/api/v1/runs/first/dossier?form="+form, "")
		if a.status != http.StatusOK {
			t.Fatalf("dossier: %d %s", a.status, a.body)
		}
		if report, err := dossier.Verify([]byte(a.body), nil); err != nil || report == nil {
			t.Errorf("the dossier as %s does not verify: %v", form, err)
		}
	}
}

func (d *door) testFiles(t *testing.T) {
	r := d.run(t, "edits", "edit", "")
	if r.State != run.Succeeded || r.Workspace == "" {
		t.Fatalf("%+v", r)
	}
	at := "/api/v1/heads/" + r.Workspace
	var list struct{ Files []struct{ Path string } }
	if d.get(t, at+"/files?limit=5", &list); len(list.Files) != 1 || list.Files[0].Path != "note.txt" {
		t.Errorf("%+v", list)
	}
	a := d.ask(t, ann, "GET", at+"/file?path=note.txt", "")
	if a.body != "one\ntwo\n" || a.header.Get("Content-Type") != "application/octet-stream" || a.header.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(a.header.Get("Content-Disposition"), "attachment") {
		t.Errorf("%d %v %q", a.status, a.header, a.body)
	}
	if b := d.send(t, ann, "GET", at+"/file?path=note.txt", "", http.Header{"If-None-Match": {a.header.Get("ETag")}}); b.status != http.StatusNotModified || b.body != "" {
		t.Errorf("with its tag: %d %q", b.status, b.body)
	}
	for _, path := range []string{at + "/diff", "/api/v1/runs/edits/diff"} {
		if a := d.ask(t, ann, "GET", path, ""); !strings.Contains(a.body, "+one\n+two\n") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	packed := d.ask(t, ann, "GET", at+"/tar", "")
	in, names := tar.NewReader(strings.NewReader(packed.body)), []string{}
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must.Do(t, err)
		names = append(names, fmt.Sprintf("%s %q", h.Name, must.Get(io.ReadAll(in))(t)))
	}
	if len(names) != 1 || names[0] != `note.txt "one\ntwo\n"` {
		t.Errorf("the tar has %v", names)
	}
	var why struct{ What, Tool, Text string }
	if d.get(t, "/api/v1/runs/edits/why?file=note.txt&line=2", &why); why.Tool != "write_workspace_file" || why.Text != "two" {
		t.Errorf("%+v", why)
	}
	var steps struct{ Changes []struct{ Step string } }
	if d.get(t, "/api/v1/runs/edits/why?file=note.txt", &steps); len(steps.Changes) != 1 {
		t.Fatalf("%+v", steps)
	}
	step := steps.Changes[0].Step
	if d.get(t, "/api/v1/runs/edits/why?step="+step, &why); why.Tool != "write_workspace_file" {
		t.Errorf("%+v", why)
	}
	var i struct{ Changed []struct{ Path string } }
	if d.get(t, "/api/v1/runs/edits/impact?step="+step, &i); len(i.Changed) != 1 || i.Changed[0].Path != "note.txt" {
		t.Errorf("%+v", i)
	}
	for _, path := range []string{at + "/file?path=none.txt", "/api/v1/heads/" + strings.Repeat("0", 63) + "1/files", "/api/v1/runs/edits/why?file=none.txt"} {
		if a := d.ask(t, ann, "GET", path, ""); a.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

func (d *door) testPublish(t *testing.T) {
	const paid = `{"event":"invoice.paid","key":"4711","value":{"amount":90},"id":"bank-1"}`
	for _, c := range []struct {
		body   string
		status int
		code   run.Code
	}{
		{paid, http.StatusOK, ""},
		{paid, http.StatusOK, ""},
		{strings.Replace(paid, "90", "91", 1), http.StatusConflict, run.CodeKeyReused},
		{`{"event":"","key":"4711"}`, http.StatusBadRequest, run.CodeMalformed},
		{`{"event":"rath.quota","key":"4711"}`, http.StatusBadRequest, run.CodeMalformed},
	} {
		a := d.ask(t, ann, "POST", "/api/v1/events", c.body)
		if a.status != c.status || c.code != "" && a.problem(t).Code != c.code {
			t.Errorf("%s: %d %s", c.body, a.status, a.body)
		}
	}
	if a := d.ask(t, caller{ours, permission.RoleClient, []string{"talk"}}, "POST", "/api/v1/events", paid); a.status != http.StatusNotFound {
		t.Errorf("a token for one workflow: %d %s", a.status, a.body)
	}
}

func (d *door) testMemories(t *testing.T) {
	const note = "/api/v1/memories/team/note"
	for _, uri := range []string{"memory://user/a", "memory://user/b"} {
		if a := d.ask(t, ann, "PUT", note, `{"uri":"`+uri+`","text":"Slugs skip empty words."}`); a.status != http.StatusOK {
			t.Fatalf("write: %d %s", a.status, a.body)
		}
	}
	var m wire.Memory
	if d.get(t, "/api/v1/memories", &m); len(m.Memories) != 1 || m.Memories[0] != "team" {
		t.Errorf("%+v", m)
	}
	if d.get(t, "/api/v1/memories/team/notes?limit=1", &m); len(m.Notes) != 1 || !m.More {
		t.Errorf("%+v", m)
	}
	m = wire.Memory{}
	if d.get(t, "/api/v1/memories/team/notes?under=memory%3A%2F%2Fuser&after="+url.QueryEscape("memory://user/a"), &m); len(m.Notes) != 1 || m.Notes[0].URI != "memory://user/b" {
		t.Errorf("%+v", m)
	}
	if d.get(t, note+"?uri=memory%3A%2F%2Fuser%2Fa", &m); m.Text != "Slugs skip empty words." {
		t.Errorf("%+v", m)
	}
	if d.get(t, "/api/v1/memories/team/search?text=slugs&limit=1", &m); len(m.Hits) != 1 {
		t.Errorf("%+v", m)
	}
	if a := d.ask(t, ann, "DELETE", note+"?uri=memory%3A%2F%2Fuser%2Fa", ""); a.status != http.StatusOK {
		t.Errorf("forget: %d %s", a.status, a.body)
	}
	if a := d.ask(t, ann, "GET", note+"?uri=memory%3A%2F%2Fuser%2Fa", ""); a.status != http.StatusNotFound {
		t.Errorf("a note that was removed: %d %s", a.status, a.body)
	}
}

func (d *door) testFleet(t *testing.T) {
	var w wire.Workflows
	if d.get(t, "/api/v1/workflows", &w); len(w.Workflows) < 3 {
		t.Errorf("%+v", w)
	}
	if d.get(t, "/api/v1/workflows/talk", &w); len(w.Workflows) != 1 {
		t.Errorf("%+v", w)
	}
	if p := d.ask(t, ann, "GET", "/api/v1/workflows/none", "").problem(t); p.Status != http.StatusNotFound || p.Code != "unknown_workflow" {
		t.Errorf("%+v", p)
	}
	var n wire.Nodes
	if d.get(t, "/api/v1/nodes", &n); len(n.Nodes) != 1 {
		t.Fatalf("%+v", n)
	}
	var one messages.Node
	if d.get(t, "/api/v1/nodes/host", &one); one.Incarnation != n.Nodes[0].Incarnation {
		t.Errorf("%+v", one)
	}
	var any map[string]json.RawMessage
	for _, path := range []string{"models", "tools", "openapi.json", "schema/task.v1.json"} {
		d.get(t, "/api/v1/"+path, &any)
	}
	if a := d.ask(t, ann, "POST", "/api/v1/lineage/repair", ""); a.status != http.StatusOK {
		t.Errorf("repair: %d %s", a.status, a.body)
	}
}

// testDrain drains a node.
func (d *door) testDrain(t *testing.T) {
	if a := d.ask(t, ann, "POST", "/api/v1/nodes/nobody/drain", ""); a.status != http.StatusNotFound {
		t.Errorf("a node that there is not: %d %s", a.status, a.body)
	}
	if a := d.ask(t, ann, "POST", "/api/v1/nodes/host/drain", ""); a.status != http.StatusOK || a.body != `{"done":true}`+"\n" {
		t.Fatalf("drain: %d %s", a.status, a.body)
	}
}

// testImport imports a session file of OpenRath.
func (d *door) testImport(t *testing.T) {
	file := string(must.Get(os.ReadFile("../../evidence/openrath/testdata/v1.2.jsonl"))(t))
	octets := http.Header{"Content-Type": {"application/octet-stream"}}
	a := d.send(t, ann, "POST", "/api/v1/imports", file, octets)
	var made wire.ImportAnswer
	if err := json.Unmarshal([]byte(a.body), &made); err != nil || a.status != http.StatusOK || len(made.Imported) != 1 {
		t.Fatalf("%d %s, %v", a.status, a.body, err)
	}
	var s messages.Session
	if d.get(t, "/api/v1/sessions/"+string(made.Imported[0].Session), &s); s.Total == 0 {
		t.Errorf("%+v", s)
	}
}

func (d *door) testLetters(t *testing.T) {
	for _, id := range []string{"lost1", "lost2"} {
		d.submit(t, id, "nobody", "")
		if a := d.ask(t, ann, "GET", "/api/v1/runs/"+id+"/result?wait_s=30", ""); !strings.Contains(a.body, "unknown_workflow") {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	var l wire.DeadLetters
	if d.get(t, "/api/v1/dead-letters?limit=10", &l); len(l.Letters) != 2 {
		t.Fatalf("%+v", l)
	}
	first, second := itoa(l.Letters[0].At), itoa(l.Letters[1].At)
	var one messages.DeadLetter
	if d.get(t, "/api/v1/dead-letters/"+first, &one); one.Run != l.Letters[0].Letter.Run {
		t.Errorf("%+v", one)
	}
	if a := d.ask(t, ann, "POST", "/api/v1/dead-letters/"+first+"/retry", `{"by":"ann"}`); a.status != http.StatusOK {
		t.Errorf("retry: %d %s", a.status, a.body)
	}
	if a := d.ask(t, ann, "POST", "/api/v1/dead-letters/"+second+"/drop", `{"reason":"a typo"}`); a.status != http.StatusOK {
		t.Errorf("drop: %d %s", a.status, a.body)
	}
	for _, at := range []string{second, "999", "x"} {
		if a := d.ask(t, ann, "POST", "/api/v1/dead-letters/"+at+"/drop", `{}`); a.status != http.StatusNotFound && a.status != http.StatusConflict {
			t.Errorf("drop %s: %d %s", at, a.status, a.body)
		}
	}
}
