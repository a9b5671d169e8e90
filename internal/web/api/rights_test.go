package api_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// bodies are valid bodies of the routes that take one, by the end of their address.
var bodies = map[string]string{
	"{run}": `{"workflow":"talk","input":"hello"}`, "cancel": `{}`, "answer": `{"answer":"approve","step":"0.approval"}`, "resolve": `{"decision":"again","reason":"r"}`,
	"message": `{"text":"t"}`, "rewind": `{"version":1,"workflow":"talk"}`, "rebudget": `{"budget":{"tokens":1}}`, "quarantine": `{"reason":"r"}`, "release": `{"reason":"r"}`,
	"note": `{"uri":"memory://user/x","text":"t"}`, "retry": `{}`, "drop": `{}`, "imports": "no archive",
}

// request returns a valid request of an operation about objects with some ids.
func request(method, at string, op operation, ids map[string]string) (path, body string, header http.Header) {
	path = at
	for name, id := range ids {
		path = strings.ReplaceAll(path, "{"+name+"}", id)
	}
	for _, p := range op.Parameters {
		if value, ok := map[string]string{"step": "0", "uri": "memory://user/x", "text": "word", "path": "note.txt"}[p.Name]; ok && p.In == "query" && !strings.Contains(at, "why") {
			path += map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")] + p.Name + "=" + value
		}
	}
	if strings.HasSuffix(at, "/impact") && strings.Contains(at, "{session}") {
		path += "?version=1"
	}
	if at == "/api/v1/events" {
		path += "?since=none" // which ends the answer
	}
	header = http.Header{}
	if op.RequestBody != nil {
		body = bodies[at[strings.LastIndex(at, "/")+1:]]
		header.Set("Content-Type", "application/json")
		if _, ok := op.RequestBody.Content["application/octet-stream"]; ok {
			header.Set("Content-Type", "application/octet-stream")
		}
	}
	return path, body, header
}

// testTenants: for each route an object of another tenant gives the answer of one that does
// not exist, with the same status, headers and text.
func (d *door) testTenants(t *testing.T) {
	c := d.clients[theirs]
	r := must.Get(c.Do(t.Context(), "edit", messages.Task{ID: "secret", Input: json.RawMessage(`"a secret"`)}, nil))(t)
	m := must.Get(c.Memory.Open("private"))(t)
	must.Do(t, m.Write(t.Context(), "memory://user/x", "a secret", memory.Origin{}))
	if _, err := c.Submit(t.Context(), "nobody", messages.Task{ID: "theirs"}); err != nil {
		t.Fatal(err)
	}
	must.Get(c.Wait(t.Context(), "theirs"))(t)
	letters := must.Get(c.Fleet.DeadLetters(t.Context(), 0))(t)
	if r.State != run.Succeeded || len(letters) != 1 {
		t.Fatalf("%+v, %d letters", r, len(letters))
	}
	foreign := map[string]string{"run": "secret", "session": string(r.Session), "head": r.Workspace, "memory": "private", "letter": itoa(letters[0].At), "step": "0.approval", "workflow": "none", "node": "none", "schema": "none"}
	missing := map[string]string{"run": "absent", "session": strings.Repeat("z", len(r.Session)-4) + string(r.Session)[len(r.Session)-4:], "head": strings.Repeat("a", 64), "memory": "nothing", "letter": "987654", "step": "0.approval", "workflow": "none", "node": "none", "schema": "none"}
	routes := 0
	for at, item := range d.spec.doc.Paths {
		if !strings.Contains(at, "{") {
			continue
		}
		for method, op := range item {
			if method == "put" {
				continue // a new id of the caller's tenant, or a note in its memory
			}
			routes++
			plain := func(ids map[string]string) (int, string) {
				path, body, header := request(method, at, op, ids)
				a := d.send(t, ann, strings.ToUpper(method), path, body, header)
				text := a.body
				for name, id := range ids {
					switch {
					case name == "letter":
						text = strings.ReplaceAll(text, "letter "+id+":", "letter {letter}:")
					case strings.Contains(at, "{"+name+"}"):
						text = strings.ReplaceAll(text, id, "{"+name+"}")
					}
					if name == "head" {
						text = strings.ReplaceAll(text, id[:12], "{"+name+"}")
					}
				}
				return a.status, text
			}
			status, text := plain(foreign)
			without, same := plain(missing)
			if status != without || text != same {
				t.Errorf("%s %s: %d %s, and of what is not there %d %s", method, at, status, text, without, same)
			}
			if strings.Contains(text, "a secret") || status == http.StatusOK && !strings.Contains(at, "memor") {
				t.Errorf("%s %s: %d %s", method, at, status, text)
			}
		}
	}
	if routes < 30 {
		t.Errorf("%d routes were tried", routes)
	}
}

// testRoles: each role may use the routes that it includes, and no other one.
func (d *door) testRoles(t *testing.T) {
	ids := map[string]string{"run": "absent-run", "session": "absent", "head": strings.Repeat("a", 64), "memory": "nothing", "letter": "987654", "step": "0.approval", "workflow": "none", "node": "none", "schema": "none"}
	for at, item := range d.spec.doc.Paths {
		for method, op := range item {
			named, _ := strings.CutPrefix(strings.TrimSuffix(op.Roles, "."), "Roles: ")
			allowed := strings.Split(named, ", ")
			if (method == "get") != (named == "") {
				t.Errorf("%s %s names the roles %q", method, at, named)
			}
			if at == "/api/v1/lineage/repair" || at == "/api/v1/imports" {
				continue // shown to a role that may, at the price of a repair
			}
			for _, role := range []permission.Role{permission.RoleObserve, permission.RoleSubmit, permission.RoleApprove, permission.RoleOperate, permission.RoleClient} {
				own := map[string]string{}
				maps.Copy(own, ids)
				own["run"] += "-" + string(role)
				path, body, header := request(method, at, op, own)
				a := d.send(t, caller{ours, role, nil}, strings.ToUpper(method), path, body, header)
				may := named == "" || slices.Contains(allowed, string(role))
				if denied := a.status == http.StatusForbidden; denied == may {
					t.Errorf("%s as %s: %s %s: %d %s", method, role, method, path, a.status, a.body)
				} else if denied && a.problem(t).Code != "denied" {
					t.Errorf("%s", a.body)
				}
			}
		}
	}
}

// testNarrow: a narrow token sees the runs of its workflows alone.
func (d *door) testNarrow(t *testing.T) {
	narrow := caller{ours, permission.RoleClient, []string{"talk"}}
	for _, path := range []string{"/sessions", "/nodes", "/tools", "/memories", "/dead-letters", "/models", "/lineage", "/workflows/publish", "/runs/ask1", "/runs/ask1/why", "/sessions/nothing", "/heads/" + strings.Repeat("a", 64) + "/files"} {
		if a := d.ask(t, narrow, "GET", "/api/v1"+path, ""); a.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	one, other := d.ask(t, narrow, "GET", "/api/v1/runs/ask1", ""), d.ask(t, narrow, "GET", "/api/v1/runs/ask9", "")
	if strings.ReplaceAll(one.body, "ask1", "ask9") != other.body {
		t.Errorf("a foreign run: %s, an unknown one: %s", one.body, other.body)
	}
	for _, body := range []string{`{"workflow":"publish"}`, `{"workflow":"talk","input":"x","workspace":"` + strings.Repeat("a", 64) + `"}`, `{"workflow":"talk","input":"x","fork_of":"chat2"}`} {
		if a := d.ask(t, narrow, "PUT", "/api/v1/runs/narrow1", body); a.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if a := d.ask(t, narrow, "PUT", "/api/v1/runs/narrow2", `{"workflow":"talk","input":"x"}`); a.status != http.StatusAccepted {
		t.Errorf("%d %s", a.status, a.body)
	}
	d.submit(t, "team1", "team", "")
	d.submit(t, "team2", "team", "")
	lead := caller{ours, permission.RoleClient, []string{"team"}}
	for {
		var page wire.Runs
		a := d.ask(t, lead, "GET", "/api/v1/questions", "")
		var asked struct{ Questions []messages.Wait }
		must.Do(t, json.Unmarshal([]byte(a.body), &asked))
		if len(asked.Questions) < 2 { // the branches begin
			time.Sleep(10 * time.Millisecond)
			continue
		}
		must.Do(t, json.Unmarshal([]byte(d.ask(t, lead, "GET", "/api/v1/runs", "").body), &page))
		branches := 0
		for i := range page.Runs {
			if r := &page.Runs[i]; r.Workflow == "publish" && r.BranchOf != nil {
				branches++
				if a := d.ask(t, lead, "GET", "/api/v1/runs/"+string(r.Run), ""); a.status != http.StatusOK {
					t.Errorf("a branch of its run: %d %s", a.status, a.body)
				}
				if a := d.ask(t, narrow, "GET", "/api/v1/runs/"+string(r.Run), ""); a.status != http.StatusNotFound {
					t.Errorf("a branch of another's run: %d %s", a.status, a.body)
				}
			} else if r.Workflow != "team" {
				t.Errorf("it sees run %s of %s", r.Run, r.Workflow)
			}
		}
		if branches != 2 {
			t.Errorf("%d branches among %+v", branches, page.Runs)
		}
		break
	}
	for _, path := range []string{"/runs", "/workflows", "/workflows/talk", "/questions", "/openapi.json"} {
		if a := d.ask(t, narrow, "GET", "/api/v1"+path, ""); a.status != http.StatusOK || strings.Contains(a.body, "ask1") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// testHostile: malformed, oversized and misleading requests are refused with a document, and
// the texts of agents come back as they are, in JSON that no browser runs.
func (d *door) testHostile(t *testing.T) {
	const plain = "application/json"
	for _, c := range []struct {
		method, path, media, body string
		status                    int
	}{
		{"PUT", "/runs/bad", plain, `{`, 400},
		{"PUT", "/runs/bad", plain, ``, 400},
		{"PUT", "/runs/bad", plain, `[]`, 400},
		{"PUT", "/runs/bad", plain, `{"workflow":"talk","input":"a","input":"b"}`, 400},
		{"PUT", "/runs/bad", plain, `{"workflow":"talk","Input":"a"}`, 400},
		{"PUT", "/runs/bad", plain, `{"workflow":"talk","id":"other"}`, 400},
		{"PUT", "/runs/bad", plain, `{"workflow":"talk","budget":{"tokens":-1}}`, 400},
		{"PUT", "/runs/bad", plain, "{\"workflow\":\"talk\",\"model\":\"\xff\"}", 400},
		{"PUT", "/runs/bad", plain, `{"workflow":"a.b"}`, 400},
		{"PUT", "/runs/bad", plain, `{"workflow":"talk","input":` + strings.Repeat("[", 100_000) + `}`, 400},
		{"PUT", "/runs/a%20b", plain, `{"workflow":"talk"}`, 400},
		{"PUT", "/runs/" + strings.Repeat("a", 65), plain, `{"workflow":"talk"}`, 400},
		{"PUT", "/runs/bad", plain, `{"workflow":"talk","input":"` + strings.Repeat("x", 300<<10) + `"}`, 413},
		{"PUT", "/runs/bad", plain, `{"workflow":"talk","input":"` + strings.Repeat("x", 600<<10) + `"}`, 413},
		{"PUT", "/runs/bad", "text/plain", `{"workflow":"talk"}`, 415},
		{"PUT", "/runs/bad", "", `{"workflow":"talk"}`, 415},
		{"POST", "/runs/first/cancel", plain, `{"decision":"again"}`, 400},
		{"POST", "/runs/first/rerun", "", ``, 200},
		{"POST", "/imports", "application/octet-stream", "no archive", 400},
		{"GET", "/runs?after=-1", "", "", 400},
		{"GET", "/runs?limit=99999999999999999999", "", "", 400},
		{"GET", "/runs?limit=1&limit=2", "", "", 400},
		{"GET", "/runs?state=odd", "", "", 400},
		{"GET", "/runs?where=%28%28%28", "", "", 400},
		{"GET", "/runs?by=a.b", "", "", 400},
		{"GET", "/runs?colour=red", "", "", 400},
		{"GET", "/runs?%zz", "", "", 400},
		{"GET", "/lineage?after=AAAA", "", "", 400},
		{"GET", "/sessions/chat/commits?at=x", "", "", 400},
		{"GET", "/sessions/chat/why?row=1&version=1", "", "", 400},
		{"GET", "/sessions/chat/why?row=99999", "", "", 404},
		{"GET", "/heads/..%2f..%2fetc/files", "", "", 400},
		{"GET", "/runs/" + "%E2%80%AE" + "x", "", "", 400},
		{"GET", "/nothing", "", "", 404},
		{"GET", "/schema/..%2f..%2fgo.mod", "", "", 404},
		{"DELETE", "/runs/first", "", "", 405},
		{"PATCH", "/runs", "", "", 405},
	} {
		header := http.Header{}
		if c.media != "" {
			header.Set("Content-Type", c.media)
		}
		a := d.send(t, ann, c.method, "/api/v1"+c.path, c.body, header)
		if a.status != c.status {
			t.Errorf("%s %.80s %.80s: %d %s, want %d", c.method, c.path, c.body, a.status, a.body, c.status)
		}
		if a.status >= 400 && len(a.body) > 8<<10 {
			t.Errorf("%s %.80s: the document has %d bytes", c.method, c.path, len(a.body))
		}
	}
	const odd = `<script>alert(1)</script>\u001b[31m\u202e\u0000 ]]> &amp;`
	d.run(t, "odd", "talk", `,"input":"`+odd+`","session":"odd"`)
	a := d.ask(t, ann, "GET", "/api/v1/sessions/odd", "")
	if !strings.Contains(a.body, "<script>alert(1)</script>") || a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Content-Type") != plain {
		t.Errorf("%v %s", a.header, a.body)
	}
	// A body that ends too early closes the connection, and later requests work.
	pr, pw := io.Pipe()
	go func() {
		_, _ = pw.Write([]byte(`{"workflow":`))
		pw.CloseWithError(io.ErrUnexpectedEOF)
	}()
	req := must.Get(http.NewRequestWithContext(t.Context(), "PUT", d.url+"/api/v1/runs/half", pr))(t)
	req.Header.Set("Tenant", string(ours))
	if res, err := http.DefaultClient.Do(req); err == nil {
		_ = res.Body.Close()
		t.Errorf("half a body: %s", res.Status)
	}
	var info messages.RunInfo
	d.get(t, "/api/v1/runs/odd", &info)
}
