package pages_test

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// holds reports the texts that a page lacks.
func holds(t *testing.T, n *html.Node, texts ...string) {
	t.Helper()
	all := textOf(n)
	for _, text := range texts {
		if !strings.Contains(all, text) {
			t.Errorf("the page lacks %q:\n%s", text, all)
		}
	}
}

// TestPages reads each page of real runs.
func TestPages(t *testing.T) {
	w := begin(t)
	head := w.files()
	w.submit("mend", messages.Task{ID: "slug-mend", Workspace: head}, "slug drops the last word; mend it.", run.Succeeded)
	w.submit("deploy", messages.Task{ID: "release-142", Workspace: head}, "Roll out slug 1.4.2.", run.Waiting)
	w.submit("talk", messages.Task{ID: "changelog-9"}, "Write the changelog of 1.4.2.", run.Running)
	w.submit("talk", messages.Task{ID: "hostile-1"}, "hostile <script>alert(0)</script>", run.Succeeded)
	w.submit("choose", messages.Task{ID: "rollout-3"}, "", run.Waiting)
	w.submit("deploy", messages.Task{ID: "release-143", Workspace: head}, "Roll out slug 1.4.2.", run.Waiting)
	w.submit("talk", messages.Task{ID: "busy-1"}, "Try again", run.Succeeded)
	w.submit("rows", messages.Task{ID: "rows-1"}, "Make many rows.", run.Succeeded)
	t.Run("runs", w.runs)
	t.Run("run", w.run)
	t.Run("step", w.step)
	t.Run("files", w.filesPages)
	t.Run("sessions", w.sessions)
	t.Run("fleet", w.fleet)
	t.Run("long", w.long)
	t.Run("hostile", w.hostile)
	t.Run("missing", w.missing)
	t.Run("events", w.events)
	t.Run("roles", w.roles)
	t.Run("questions", w.questions)
	t.Run("restart", w.restart)
	t.Run("older", w.older)
}

func (w *world) runs(t *testing.T) {
	page := w.get("/t/default/runs", 200)
	holds(t, page, "slug drops the last word; mend it.", "slug-mend", "Asks a person has to answer", "release-142", "Roll out slug 1.4.2.", "writer asks gpt-5.4-mini", "Ended newest first")
	if got := len(find(page, "tr", "data-row", "")); got != 8 {
		t.Errorf("%d runs, want 8", got)
	}
	page = w.get("/t/default/runs?show=asks", 200)
	holds(t, page, "release-142", "rollout-3")
	if strings.Contains(textOf(page), "slug-mend") {
		t.Error("the filter shows a run that asks nothing")
	}
	holds(t, w.get("/t/default/runs?where="+url.QueryEscape("workflow=mend"), 200), "slug-mend")
	holds(t, w.get("/t/default/runs?where=%28", 200), "These conditions were not understood.")
}

func (w *world) run(t *testing.T) {
	page := w.get("/t/default/runs/slug-mend", 200)
	holds(t, page, "done.", "fan", "adopted", "rejected: rewrites the whole script", "failed: llm: context_length", "skip", "awk2", "1 adopted", "6 rejected", "1 failed", "slug.sh")
	if strings.Contains(textOf(page), "compensations of") {
		t.Error("a run that cleans nothing up is shown as one that does")
	}
	rows := find(page, "li", "data-row", "")
	if len(rows) < 5 {
		t.Errorf("%d rows: %s", len(rows), textOf(page))
	}
	if strong := find(page, "strong", "", ""); len(strong) == 0 || !strings.Contains(textOf(page), "last word") {
		t.Error("the answer of the adopted branch is not rendered as Markdown")
	}
	holds(t, w.get("/t/default/runs/busy-1", 200), "It worked in the end.")
	if tries := find(w.get("/t/default/runs/busy-1", 200), "span", "class", "v tries"); textOf(tries[len(tries)-1]) != "2" {
		t.Errorf("the answer took %q tries, want 2", textOf(tries[len(tries)-1]))
	}
	holds(t, w.get("/t/default/runs/slug-mend?q=line+break", 200), "rows with it")
	page = w.get("/t/default/runs/changelog-9", 200)
	holds(t, page, "writer asks gpt-5.4-mini", "nothing of the answer has come", "Restart from here…", "Stop 1 run?")
	page = w.get("/t/default/runs/changelog-9?live", 200)
	if len(find(page, "header", "class", "top")) != 0 || len(find(page, "main", "", "")) != 1 {
		t.Error("the live part is more than the page's own")
	}
}

func (w *world) step(t *testing.T) {
	page := w.get("/t/default/runs/release-142", 200)
	if len(find(page, "a", "class", "b small why")) == 0 {
		t.Errorf("no row leads to its step: %s", textOf(page))
	}
	holds(t, w.get("/t/default/runs/release-142/step/0", 200), "made by deployer", "Prompt", "Roll out slug 1.4.2.", "You deploy", "What it touched")
	w.get("/t/default/runs/release-142/step/99", 404)
}

func (w *world) filesPages(t *testing.T) {
	page := w.get("/t/default/runs/slug-mend/files", 200)
	holds(t, page, "1 of 4 files changed", "slug.sh", `printf '%s\n' "$1"`, "copied in", "skip")
	page = w.get("/t/default/runs/slug-mend/files?path=slug.sh&line=2", 200)
	holds(t, page, "made by skip with write_workspace_file", "Open the call")
	holds(t, w.get("/t/default/runs/slug-mend/files?path=README.md", 200), "# slug")
	w.get("/t/default/runs/slug-mend/files?path=nothing", 404)
	w.get("/t/default/runs/slug-mend/files?a=0123456789abcdef", 404)
	page = w.get("/t/default/runs/slug-mend/file?path=slug.sh", 200)
	if !strings.Contains(textOf(page), "printf") || w.last.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(w.last.Get("Content-Disposition"), "attachment; filename=") || strings.Contains(w.last.Get("Content-Disposition"), "slug") {
		t.Errorf("the download: %v", w.last)
	}
	w.get("/t/default/runs/slug-mend/tar", 200)
	pictures := find(w.get("/t/default/runs/slug-mend/files?path=dot.gif", 200), "img", "", "")
	if len(pictures) != 1 {
		t.Fatalf("%d pictures, want one", len(pictures))
	}
	src, _ := attrOf(pictures[0], "src")
	if w.get(src, 200); w.last.Get("Content-Type") != "image/gif" || w.last.Get("Content-Disposition") != "" {
		t.Errorf("the picture: %v", w.last)
	}
	if len(find(w.get("/t/default/runs/slug-mend/files?path=slug.sh", 200), "img", "", "")) != 0 {
		t.Error("a text is shown as a picture")
	}
}

func (w *world) sessions(t *testing.T) {
	page := w.get("/t/default/sessions", 200)
	holds(t, page, "slug-mend")
	r := w.until("slug-mend", run.Succeeded)
	holds(t, w.get("/t/default/sessions/"+string(r.Session), 200), "Versions", "skip", "slug drops the last word", "at ")
	holds(t, w.get("/t/default/sessions/"+string(r.Session)+":1", 200), "1 of ")
}

func (w *world) fleet(t *testing.T) {
	holds(t, w.get("/t/default/fleet", 200), "dev", "serving", "Pools", "Streams", "EV_1_0", "Drain 1 node")
}

func (w *world) long(t *testing.T) {
	page := w.get("/t/default/runs/rows-1", 200)
	holds(t, page, "10,001 rows", "row 9999 of many")
	if got := len(find(page, "li", "data-row", "")); got != 200 {
		t.Errorf("%d rows on the page, want 200", got)
	}
	links := find(page, "a", "rel", "prev")
	href, _ := attrOf(links[0], "href")
	holds(t, w.get(href, 200), "row 9750 of many")
	at := "/t/default/sessions/" + string(w.until("rows-1", run.Succeeded).Session)
	page = w.get(at, 200)
	holds(t, page, "row 9999 of many", "Show runs, forks and versions")
	if strings.Contains(textOf(page), "Forks") {
		t.Error("the page of a long session reads its whole tree")
	}
	holds(t, w.get(at+"?tree", 200), "Forks", "rows-1")
}

// older: the newest 200 runs lead to the others.
func (w *world) older(t *testing.T) {
	for i := range 200 {
		w.submit("rows", messages.Task{ID: run.ID(fmt.Sprint("small-", i))}, "1 row", run.Succeeded)
	}
	page := w.get("/t/default/runs", 200)
	links := find(page, "a", "rel", "next")
	if len(links) != 1 || strings.Contains(textOf(page), "slug-mend") {
		t.Fatalf("%d links to older runs: %s", len(links), textOf(page))
	}
	href, _ := attrOf(links[0], "href")
	holds(t, page, "All 200+", "Failed 0+", "Stuck 0")
	page = w.get(href, 200)
	holds(t, page, "slug-mend")
	if len(find(page, "a", "rel", "next")) != 0 || strings.Contains(textOf(page), "small-199") {
		t.Errorf("the older runs: %s", textOf(page))
	}
	w.get("/t/default/runs?after=x", 404)
}

// hostile: no text of an agent acts, hides, or speaks as the page.
func (w *world) hostile(t *testing.T) {
	page := w.get("/t/default/runs/hostile-1", 200)
	holds(t, page, "<script>alert(1)</script>", "javascript:alert(2)", "https://evil.example/p.png", "ESC", "U+202E", "U+200B", "not Latin: а")
	for d := range page.Descendants() {
		if d.Type != html.ElementNode {
			continue
		}
		src, _ := attrOf(d, "src")
		href, _ := attrOf(d, "href")
		if d.Data == "img" || d.Data == "script" && src != "/static/rath.js" || strings.HasPrefix(href, "javascript") || strings.Contains(href, "evil") {
			t.Errorf("a text became an element: %s %v", d.Data, d.Attr)
		}
		for _, a := range d.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" {
				t.Errorf("%s has the attribute %s", d.Data, a.Key)
			}
		}
	}
	title := textOf(find(w.get("/t/default/runs?where=%3Cb%3E%E2%80%AE", 200), "title", "", "")[0])
	if strings.ContainsRune(title, 0x202e) {
		t.Error("a title has a hidden character")
	}
}

func (w *world) missing(t *testing.T) {
	other := textOf(find(w.get("/t/other/runs", 404), "main", "", "")[0])
	for _, path := range []string{"/t/default/runs/nobody", "/t/default/sessions/nobody", "/t/default/runs/..%2f", "/t/default/questions/nobody/0", "/t/default/nothing", "/t/other/runs/slug-mend"} {
		if got := textOf(find(w.get(path, 404), "main", "", "")[0]); strings.ReplaceAll(got, "default", "other") != other {
			t.Errorf("%s is told apart: %q and %q", path, got, other)
		}
	}
}

// events: a page names the place of its updates, which is the caller's tenant's alone.
func (w *world) events(t *testing.T) {
	for page, want := range map[string]string{"runs/changelog-9": "changelog-9", "runs": "", "questions": "", "fleet": ""} {
		main := find(w.get("/t/default/"+page, 200), "main", "", "")[0]
		from, _ := attrOf(main, "data-events")
		if got := textOf(w.get(from, 200)); !strings.Contains(got, fmt.Sprintf(`"run":%q`, want)) {
			t.Errorf("the page %s gets %s", page, got)
		}
	}
	if _, asks := attrOf(find(w.get("/t/default/runs/slug-mend", 200), "main", "", "")[0], "data-events"); asks {
		t.Error("the page of an ended run asks for updates")
	}
	w.get("/events/t/other/runs", 404)
	w.get("/events/t/default/runs/nobody", 404)
	if got := value(t, w.get("/t/default/runs/changelog-9", 200), "form_token"); got != "token-1" {
		t.Errorf("the form's token is %q", got)
	}
}

func (w *world) roles(t *testing.T) {
	w.role = permission.RoleObserve
	defer func() { w.role = permission.RoleClient }()
	holds(t, w.get("/t/default/runs/changelog-9", 200), "Stop: needs the role", "Restart from here: needs the role")
	holds(t, w.get("/t/default/questions/rollout-3/0", 200), "Answering needs the role")
	w.post("/t/default/runs/changelog-9/cancel", 403, nil)
	w.post("/t/default/runs", 403, url.Values{"run": {"changelog-9"}, "sure": {"1"}})
	w.post("/t/default/questions/rollout-3/0", 403, url.Values{"answer": {"value"}, "value": {"ann"}})
	w.post("/t/default/runs/changelog-9/restart", 403, nil)
}

// questions: an answer is for exactly what was shown, and the second one is told who was
// first.
func (w *world) questions(t *testing.T) {
	holds(t, w.get("/t/default/questions", 200), "3 questions wait")
	r := w.until("release-142", run.Waiting)
	path := "/t/default/questions/release-142/" + string(r.Waits[0].Step)
	page := w.get(path, 200)
	holds(t, page, "write_workspace_file", "deploy.yaml", "+2 −2", "image: slug:1.4.1", "image: slug:1.4.2", "No hidden characters", "The whole call,")
	shown := value(t, page, "shown")
	w.post(path, 409, url.Values{"answer": {"yes"}, "shown": {"other" + shown}})
	w.post(path, 422, url.Values{"answer": {"no"}, "shown": {shown}})
	page, _ = w.post(path, 422, url.Values{"answer": {"edit"}, "shown": {shown}, "value": {`{"path":`}})
	if area := find(page, "textarea", "id", "edit"); len(area) != 1 || textOf(area[0]) != `{"path":` {
		t.Error("the edited call is lost")
	}
	if _, to := w.post(path, 303, url.Values{"answer": {"yes"}, "shown": {shown}, "reason": {"looks good"}}); !strings.Contains(to, "/questions/rollout-3/") {
		t.Errorf("the next question is %s", to)
	}
	w.until("release-142", run.Succeeded)
	holds(t, w.get("/t/default/questions/release-143/"+string(w.until("release-143", run.Waiting).Waits[0].Step), 200), "Earlier answers", "release-142", "approved by operator: looks good")
	page, _ = w.post(path, 409, url.Values{"answer": {"no"}, "shown": {shown}, "reason": {"late"}})
	holds(t, page, "was first", "Your answer was not recorded.")
	holds(t, w.get(path+"?live", 200), "2 questions wait")

	r = w.until("rollout-3", run.Waiting)
	path = "/t/default/questions/rollout-3/" + string(r.Waits[0].Step)
	page = w.get(path, 200)
	holds(t, page, "Which customers get 1.4.2 ⟦U+202E⟧first?", "U+202E", "2 hidden characters", "+two <b>")
	form := url.Values{"answer": {"value"}, "value": {"ann"}, "shown": {value(t, page, "shown")}}
	w.post(path, 422, form) // the hidden character was not confirmed
	form.Set("seen", value(t, page, "seen"))
	w.post(path, 303, form)
	w.until("rollout-3", run.Succeeded)
	w.post("/t/default/runs/release-143/cancel", 303, nil)
	w.until("release-143", run.Cancelled)
	holds(t, w.get("/t/default/questions", 200), "0 questions wait", "Nobody waits for an answer.")
}

// restart stops a run that hangs and begins its task again with another message, then
// continues from the version before an answer.
func (w *world) restart(t *testing.T) {
	again := func(from run.ID, text string) (run.ID, messages.Session) {
		t.Helper()
		page := w.get("/t/default/runs/"+string(from), 200)
		links := find(page, "a", "class", "b small restart")
		if len(links) == 0 {
			t.Fatalf("no row can be restarted: %s", textOf(page))
		}
		href, _ := attrOf(links[len(links)-1], "href")
		form := url.Values{"from": {value(t, w.get(href, 200), "from")}, "text": {text}}
		_, to := w.post("/t/default/runs/"+string(from)+"/restart", 303, form)
		id := run.ID(to[strings.LastIndexByte(to, '/')+1:])
		r := w.until(id, run.Succeeded)
		return id, must.Get(w.client.Sessions.Get(t.Context(), string(r.Session)))(t)
	}
	id, s := again("changelog-9", "hostile, then")
	w.until("changelog-9", run.Cancelled)
	if len(s.Parents) != 0 || s.Chunks[0].Text != "hostile, then" {
		t.Errorf("the task began again on %+v", s)
	}
	if _, s = again(id, "hostile, once more"); len(s.Parents) != 1 || s.Chunks[0].Text != "hostile, then" || s.Chunks[1].Text != "hostile, once more" {
		t.Errorf("it continued on %+v", s)
	}
	w.post("/t/default/runs/changelog-9/cancel", 409, url.Values{"reason": {"again"}})
	w.post("/t/default/runs/"+string(id)+"/restart", 422, url.Values{"from": {"nothing"}})
	w.post("/t/default/runs/"+string(id)+"/burn", 404, nil)
	_, to := w.post("/t/default/runs/"+string(id)+"/rerun", 303, nil)
	if !strings.HasSuffix(to, string(id)+"-r1") {
		t.Errorf("the rerun is at %s", to)
	}
}

// TestRunThatWaits: the page of a run that waits for an event or for the quota has the command
// that ends the wait.
func TestRunThatWaits(t *testing.T) {
	t.Parallel()
	w := begin(t)
	must.Do(t, w.client.Fleet.ChangeQuota(t.Context(), messages.VerbQuotaSet, messages.Control{Quota: &messages.QuotaAmounts{Tokens: 1}}))
	w.submit("pay", messages.Task{ID: "pay-7"}, "", run.Waiting)
	holds(t, w.get("/t/default/runs/pay-7", 200), "for event: invoice.paid o'brien 7 (until ", `rath event publish invoice.paid 'o'\''brien 7'`)
	for _, id := range []run.ID{"release-1", "release-2"} {
		w.submit("deploy", messages.Task{ID: id, Workspace: w.files()}, "Roll out slug 1.4.2.", run.Waiting)
	}
	holds(t, w.get("/t/default/runs/release-2", 200), "for the quota: ", "rath cluster quota open default")
}

// TestScript bounds the script, and forbids it to make markup.
func TestScript(t *testing.T) {
	data := must.Get(os.ReadFile("static/rath.js"))(t)
	if n := bytes.Count(data, []byte("\n")); n > 900 {
		t.Errorf("the script has %d lines, at most 900", n)
	}
	for _, sink := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "createContextualFragment", ".style"} {
		if bytes.Contains(data, []byte(sink)) {
			t.Errorf("the script uses %s", sink)
		}
	}
	if n := bytes.Count(data, []byte("createHTML(")); n != 1 {
		t.Errorf("the script makes markup at %d places, want one", n)
	}
}
