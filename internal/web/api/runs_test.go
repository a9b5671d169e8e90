package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestRoutes uses each route of one node.
func TestRoutes(t *testing.T) {
	d := open(t)
	t.Run("submit", d.testSubmit)
	t.Run("events", d.testEvents)
	t.Run("questions", d.testQuestions)
	t.Run("sessions and evidence", d.testSessions)
	t.Run("files", d.testFiles)
	t.Run("memories", d.testMemories)
	t.Run("publish", d.testPublish)
	t.Run("fleet", d.testFleet)
	t.Run("dead letters", d.testLetters)
	t.Run("after", d.testAfter)
	t.Run("decisions", d.testDecisions)
	t.Run("narrow", d.testNarrow)
	t.Run("tenants", d.testTenants)
	t.Run("roles", d.testRoles)
	t.Run("hostile", d.testHostile)
	t.Run("import", d.testImport)
	t.Run("drain", func(t *testing.T) {
		alone := open(t) // no other tenant has sessions
		alone.spec = d.spec
		alone.testDrain(t)
	})
	for at, item := range d.spec.doc.Paths {
		for method := range item {
			if what := strings.ToUpper(method) + " " + at; !d.spec.used[what] {
				t.Errorf("%s never succeeded: the description of its answer is not shown", what)
			}
		}
	}
}

func (d *door) testSubmit(t *testing.T) {
	r := d.run(t, "first", "talk", `,"input":"hello","session":"chat"`)
	if r.State != run.Succeeded || r.Output != "echo: hello" {
		t.Fatalf("%+v", r)
	}
	again := d.ask(t, ann, "PUT", "/api/v1/runs/first", `{"session":"chat","input":"hello","workflow":"talk"}`)
	if again.status != http.StatusAccepted {
		t.Errorf("the same task again: %d %s", again.status, again.body)
	}
	other := d.ask(t, ann, "PUT", "/api/v1/runs/first", `{"workflow":"talk","input":"bye"}`)
	if p := other.problem(t); other.status != http.StatusConflict || p.Code != run.CodeKeyReused || p.Remedy == "" {
		t.Errorf("another task under the id: %+v", p)
	}
	for i, id := range []string{"second", "third"} {
		d.run(t, id, "talk", `,"input":"`+strings.Repeat("x", i+1)+`"`)
	}
	var page wire.Runs
	d.get(t, "/api/v1/runs?limit=1", &page)
	seen := []run.ID{}
	for {
		for _, r := range page.Runs {
			seen = append(seen, r.Run)
		}
		if page.Next == 0 {
			break
		}
		next := page.Next
		page = wire.Runs{}
		d.get(t, "/api/v1/runs?limit=1&after="+itoa(next), &page)
	}
	if len(seen) != 3 || seen[0] != "third" || seen[2] != "first" {
		t.Errorf("the pages have %v", seen)
	}
	d.get(t, "/api/v1/runs?state=failed&state=cancelled&workflow=talk&by=ann&where=tool%3Dgrep", &page)
	if len(page.Runs) != 0 {
		t.Errorf("%+v", page)
	}
	var info messages.RunInfo
	d.get(t, "/api/v1/runs/@last", &info)
	if info.Run != "third" || info.State != run.Succeeded {
		t.Errorf("%+v", info)
	}
	var live messages.Live
	d.get(t, "/api/v1/runs/third/live", &live)
	var replay messages.Replay
	if d.get(t, "/api/v1/runs/third/replay", &replay); !replay.Matches {
		t.Errorf("%+v", replay)
	}
	var made struct{ Run run.ID }
	a := d.ask(t, ann, "POST", "/api/v1/runs/third/rerun", "")
	must.Do(t, json.Unmarshal([]byte(a.body), &made))
	if made.Run != "third-r1" {
		t.Errorf("rerun: %d %s", a.status, a.body)
	}
	if a := d.ask(t, ann, "POST", "/api/v1/runs/third/resume", "{}"); a.status != http.StatusConflict {
		t.Errorf("resume of a run that succeeded: %d %s", a.status, a.body)
	}
	a = d.ask(t, ann, "POST", "/api/v1/runs/first/rewind", `{"version":1,"workflow":"talk","input":"again","id":"fourth"}`)
	if a.status != http.StatusAccepted {
		t.Errorf("rewind: %d %s", a.status, a.body)
	}
	var res messages.Result
	if d.get(t, "/api/v1/runs/fourth/result?wait_s=30", &res); res.Output != "echo: again" {
		t.Errorf("%+v", res)
	}
	if a := d.ask(t, ann, "POST", "/api/v1/sessions/chat/message", `{"text":"and mind the tests"}`); a.status != http.StatusOK {
		t.Errorf("message to a session: %d %s", a.status, a.body)
	}
}

func (d *door) testQuestions(t *testing.T) {
	for _, id := range []string{"ask1", "ask2"} {
		d.submit(t, id, "publish", "")
	}
	step := d.question(t, "ask1")
	early := d.ask(t, ann, "GET", "/api/v1/runs/ask1/result", "")
	if p := early.problem(t); p.Code != run.CodeState || p.Status != http.StatusConflict {
		t.Errorf("the result before the end: %+v", p)
	}
	d.question(t, "ask2")
	var list struct {
		Questions []struct{ Run, Step, Title string }
	}
	d.get(t, "/api/v1/questions", &list)
	if len(list.Questions) != 2 || list.Questions[0].Title != "Publish the notes?" {
		t.Fatalf("%+v", list)
	}
	var q struct{ Digest string }
	d.get(t, "/api/v1/questions/ask1/"+step, &q)
	stale := d.ask(t, ann, "POST", "/api/v1/runs/ask1/answer", `{"answer":"approve","step":"`+step+`","digest":"00"}`)
	if p := stale.problem(t); p.Code != "stale" || p.Status != http.StatusConflict {
		t.Errorf("a stale digest: %+v", p)
	}
	if a := d.ask(t, ann, "POST", "/api/v1/runs/ask1/answer", `{"answer":"approve","step":"`+step+`","digest":"`+q.Digest+`"}`); a.status != http.StatusOK {
		t.Errorf("approve: %d %s", a.status, a.body)
	}
	var r messages.Result
	if d.get(t, "/api/v1/runs/ask1/result?wait_s=30", &r); r.State != run.Succeeded {
		t.Errorf("%+v", r)
	}
	second := d.ask(t, ann, "POST", "/api/v1/runs/ask1/answer", `{"answer":"approve","step":"`+step+`"}`)
	if p := second.problem(t); p.Code != run.CodeState {
		t.Errorf("a second answer: %+v", p)
	}
	if a := d.ask(t, ann, "POST", "/api/v1/runs/ask2/answer", `{"answer":"reject","reason":"not yet"}`); a.status != http.StatusOK {
		t.Errorf("reject: %d %s", a.status, a.body)
	}
	if d.get(t, "/api/v1/runs/ask2/result?wait_s=30", &r); r.State != run.Failed || !strings.Contains(r.Error, "not yet") {
		t.Errorf("%+v", r)
	}
	var made struct{ Run run.ID }
	resumed := d.ask(t, ann, "POST", "/api/v1/runs/ask2/resume", `{"from":"0"}`)
	if must.Do(t, json.Unmarshal([]byte(resumed.body), &made)); resumed.status != http.StatusOK || made.Run != "ask2-r1" {
		t.Errorf("resume: %d %s", resumed.status, resumed.body)
	}
	d.question(t, "ask2-r1") // it asks again
	if a := d.ask(t, ann, "POST", "/api/v1/runs/ask2-r1/answer", `{"answer":"approve"}`); a.status != http.StatusOK {
		t.Errorf("approve: %d %s", a.status, a.body)
	}
	if d.get(t, "/api/v1/runs/ask2-r1/result?wait_s=30", &r); r.State != run.Succeeded {
		t.Errorf("%+v", r)
	}
}

// testAfter submits runs that begin after one which then fails.
func (d *door) testAfter(t *testing.T) {
	d.submit(t, "gate", "publish", "")
	d.question(t, "gate")
	d.submit(t, "strict", "talk", `,"input":"x","after":["gate"]`)
	d.submit(t, "easy", "talk", `,"input":"x","after_any":["gate"]`)
	for _, id := range []string{"strict", "easy"} {
		var live messages.Live
		for len(live.Waits) == 0 { // a node has not taken its task yet
			if a := d.ask(t, ann, "GET", "/api/v1/runs/"+id+"/live", ""); a.status == http.StatusOK {
				must.Do(t, json.Unmarshal([]byte(a.body), &live))
			}
			time.Sleep(5 * time.Millisecond)
		}
		var info messages.RunInfo
		d.get(t, "/api/v1/runs/"+id, &info)
		if len(info.Waits) != 1 || info.State != run.Queued || !strings.HasPrefix(live.Waits[0].String(), "for run: gate") {
			t.Errorf("run %s waits for %+v and is shown as %+v", id, live.Waits, info)
		}
	}
	if a := d.ask(t, ann, "POST", "/api/v1/runs/gate/answer", `{"answer":"reject","reason":"not yet"}`); a.status != http.StatusOK {
		t.Errorf("reject: %d %s", a.status, a.body)
	}
	var r messages.Result
	d.get(t, "/api/v1/runs/strict/result?wait_s=30", &r)
	if r.State != run.Failed || r.Code != run.CodeAfter || !strings.Contains(r.Error, "run gate, which must succeed before this run begins, has failed") {
		t.Errorf("a run after one that failed: %+v", r)
	}
	if r := d.run(t, "both", "talk", `,"input":"x","after":["easy"],"after_any":["gate"]`); r.State != run.Succeeded {
		t.Errorf("a run after one that succeeded and one that failed: %+v", r)
	}
	if r := d.run(t, "lost", "talk", `,"input":"x","after":["nobody"]`); r.Code != run.CodeUnknownRun {
		t.Errorf("a run after one that is not known: %+v", r)
	}
	itself := d.ask(t, ann, "PUT", "/api/v1/runs/self", `{"workflow":"talk","input":"x","after":["self"]}`)
	if p := itself.problem(t); itself.status != http.StatusBadRequest || p.Code != run.CodeMalformed || p.Remedy == "" {
		t.Errorf("a run after itself: %d %+v", itself.status, p)
	}
}

func (d *door) testDecisions(t *testing.T) {
	d.submit(t, "kept", "publish", "")
	d.question(t, "kept")
	for _, c := range []struct{ verb, body string }{
		{"message", `{"text":"hurry"}`},
		{"rebudget", `{"budget":{"tokens":1000}}`},
		{"quarantine", `{"reason":"odd"}`},
		{"release", `{"reason":"fine"}`},
		{"cancel", `{"reason":"enough"}`},
	} {
		if a := d.ask(t, ann, "POST", "/api/v1/runs/kept/"+c.verb, c.body); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", c.verb, a.status, a.body)
		}
	}
	var r messages.Result
	if d.get(t, "/api/v1/runs/kept/result?wait_s=30", &r); r.State != run.Cancelled {
		t.Errorf("%+v", r)
	}
	a := d.ask(t, ann, "POST", "/api/v1/runs/kept/resolve", `{"decision":"again","reason":"it did not"}`)
	if p := a.problem(t); p.Code != run.CodeState {
		t.Errorf("resolve of a run without a review: %+v", p)
	}
	d.submit(t, "fickle", "fickle", "")
	d.question(t, "fickle")
	if a := d.ask(t, ann, "POST", "/api/v1/runs/fickle/answer", `{"answer":"approve"}`); a.status != http.StatusOK {
		t.Fatalf("approve: %d %s", a.status, a.body)
	}
	for state := run.Waiting; state != run.NeedsReview; time.Sleep(10 * time.Millisecond) {
		if state = must.Get(d.clients[ours].Runs.Get(t.Context(), "fickle"))(t).State; state.Terminal() {
			t.Fatalf("the run is %s", state)
		}
	}
	if a := d.ask(t, ann, "POST", "/api/v1/runs/fickle/resolve", `{"decision":"fail","reason":"it changes its mind"}`); a.status != http.StatusOK {
		t.Errorf("resolve: %d %s", a.status, a.body)
	}
	if d.get(t, "/api/v1/runs/fickle/result?wait_s=30", &r); r.State != run.Failed || !strings.Contains(r.Error, "it changes its mind") {
		t.Errorf("%+v", r)
	}
}
