package dossier_test

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

// clone copies evidence so that a test may change it.
func clone(e *dossier.Evidence) *dossier.Evidence {
	c := *e
	c.Logs = slices.Clone(e.Logs)
	for i := range c.Logs {
		c.Logs[i].Commits = slices.Clone(c.Logs[i].Commits)
	}
	c.Blobs, c.Left, c.Stated = maps.Clone(e.Blobs), maps.Clone(e.Left), slices.Clone(e.Stated)
	return &c
}

func render(t testing.TB, e *dossier.Evidence) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for form, fn := range map[string]func(*dossier.Evidence) ([]byte, error){
		dossier.FormHTML: dossier.HTML, dossier.FormMarkdown: dossier.Markdown, dossier.FormJSON: (*dossier.Evidence).Encode,
	} {
		doc, err := fn(e)
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		out[form] = doc
	}
	return out
}

func failure(t testing.TB, err error) *dossier.Failure {
	t.Helper()
	f, ok := errors.AsType[*dossier.Failure](err)
	if !ok {
		t.Fatalf("error %v, want a Failure", err)
	}
	return f
}

// listOf returns the list of a model's instructions with a prompt.
func listOf(t *testing.T, e *dossier.Evidence, prompt string) blob.Digest {
	t.Helper()
	for d, data := range e.Blobs {
		if list, ok := journal.ReadInstructions(data); ok && list.Prompt == blob.Sum([]byte(prompt)) {
			return d
		}
	}
	t.Fatalf("no list has the prompt %q", prompt)
	return blob.Digest{}
}

// TestFlippedBytes changes single bytes of every commit in every form: each
// time the failure names that commit.
func TestFlippedBytes(t *testing.T) {
	e := sample(t)
	r := rand.New(rand.NewPCG(7, 7))
	for form, doc := range render(t, e) {
		for _, l := range e.Logs {
			for i, raw := range l.Commits {
				mark := []byte(`{"hash":"` + commitlog.HashOf([]byte(raw)).String())
				at := bytes.Index(doc, mark)
				size := bytes.IndexByte(doc[at:], '\n')
				for range 8 {
					bad := slices.Clone(doc)
					// From the second byte on: without its first byte the line is not a commit.
					bad[at+1+r.IntN(size-3)] ^= byte(1 << r.IntN(8))
					_, err := dossier.Verify(bad, nil)
					f := failure(t, err)
					if f.Session != l.Session || f.Commit != uint64(i+1) || f.Kind != dossier.Altered {
						t.Fatalf("%s: a byte of commit %d of %s is flipped: %v", form, i+1, l.Session, err)
					}
				}
			}
		}
	}
}

// TestTampering changes evidence like a forger who recomputes all hashes of the document.
func TestTampering(t *testing.T) {
	e := sample(t)
	branch := e.Logs[1].Session
	head := commitlog.HashOf([]byte(e.Logs[0].Commits[len(e.Logs[0].Commits)-1]))
	manifest := blob.Digest{}
	for d, data := range e.Blobs {
		if bytes.Contains(data, []byte("Empty titles")) {
			manifest = d
		}
	}
	for _, tt := range []struct {
		name    string
		change  func(e *dossier.Evidence)
		kind    dossier.Kind
		session session.ID
		commit  uint64
	}{
		{"nothing", func(*dossier.Evidence) {}, "", "", 0},
		{"a commit is dropped", func(e *dossier.Evidence) { e.Logs[0].Commits = slices.Delete(e.Logs[0].Commits, 4, 5) }, dossier.Missing, home.ID, 5},
		{"the first commit is dropped", func(e *dossier.Evidence) { e.Logs[0].Commits = e.Logs[0].Commits[1:] }, dossier.Missing, home.ID, 1},
		{"two commits are swapped", func(e *dossier.Evidence) { swap(e.Logs[1].Commits, 2, 3) }, dossier.Reordered, branch, 3},
		{"a commit is there twice", func(e *dossier.Evidence) {
			e.Logs[0].Commits = slices.Insert(e.Logs[0].Commits, 3, e.Logs[0].Commits[2])
		}, dossier.Reordered, home.ID, 4},
		{"a commit of another session", func(e *dossier.Evidence) { e.Logs[0].Commits[4] = e.Logs[1].Commits[4] }, dossier.Foreign, home.ID, 5},
		{"a commit is no commit", func(e *dossier.Evidence) { e.Logs[0].Commits[4] = `{"events":[]}` }, dossier.Foreign, home.ID, 5},
		{"a text is changed", func(e *dossier.Evidence) { replace(e.Logs[1].Commits, 1, "A quick fix", "A great fix") }, dossier.Altered, branch, 2},
		{"a time is changed", func(e *dossier.Evidence) { replace(e.Logs[0].Commits, 6, `"time":1`, `"time":2`) }, dossier.Altered, home.ID, 7},
		{"who submitted the run is changed", func(e *dossier.Evidence) { replace(e.Logs[0].Commits, 0, `"by":"ben"`, `"by":"eve"`) }, dossier.Altered, home.ID, 1},
		{"who submitted the run is dropped", func(e *dossier.Evidence) { replace(e.Logs[0].Commits, 0, `"by":"ben",`, "") }, dossier.Altered, home.ID, 1},
		{"the end of an answer is changed", func(e *dossier.Evidence) { replace(e.Logs[1].Commits, 1, `"finish":"`, `"finish":"x`) }, dossier.Altered, branch, 2},
		{"the instructions of a step are changed", func(e *dossier.Evidence) {
			replace(e.Logs[1].Commits, 1, `"given":"`+listOf(t, e, "Be quick.").String(), `"given":"`+listOf(t, e, "Be careful.").String())
		}, dossier.Altered, branch, 2},
		{"a list of instructions is changed", func(e *dossier.Evidence) {
			e.Blobs[listOf(t, e, "Be quick.")] = e.Blobs[listOf(t, e, "Be careful.")]
		}, dossier.Blob, "", 0},
		{"a list of instructions is dropped", func(e *dossier.Evidence) { delete(e.Blobs, listOf(t, e, "Be quick.")) }, dossier.Missing, "", 0},
		{"a commit is forged", func(e *dossier.Evidence) { forge(t, e, 0, 4) }, dossier.Altered, home.ID, 5},
		{"a rejected branch loses its end", func(e *dossier.Evidence) { cut(&e.Logs[1], 1) }, dossier.Cut, branch, 8},
		{"an adopted branch loses more", func(e *dossier.Evidence) { cut(&e.Logs[2], 2) }, dossier.Cut, e.Logs[2].Session, 8},
		{"a branch is dropped", func(e *dossier.Evidence) { e.Logs = slices.Delete(e.Logs, 1, 2) }, dossier.Missing, branch, 0},
		{"sessions are swapped", func(e *dossier.Evidence) { e.Logs[1], e.Logs[2] = e.Logs[2], e.Logs[1] }, dossier.Malformed, e.Logs[2].Session, 0},
		{"a session is there twice", func(e *dossier.Evidence) { e.Logs = append(e.Logs, e.Logs[1]) }, dossier.Foreign, branch, 0},
		{"a session of another run", func(e *dossier.Evidence) { e.Logs = append(e.Logs, other(t)) }, dossier.Foreign, "elsewhere", 1},
		{"a blob is replaced", func(e *dossier.Evidence) { e.Blobs[manifest] = []byte("Full titles") }, dossier.Blob, "", 0},
		{"a prompt is changed", func(e *dossier.Evidence) { e.Blobs[blob.Sum([]byte("Be careful."))] = []byte("Be careless.") }, dossier.Blob, "", 0},
		{"a prompt is dropped", func(e *dossier.Evidence) { delete(e.Blobs, blob.Sum([]byte("Be careful."))) }, dossier.Missing, "", 0},
		{"a prompt is put in the place of another", func(e *dossier.Evidence) {
			delete(e.Blobs, blob.Sum([]byte("Be careful.")))
			e.Blobs[blob.Sum([]byte("Be careless."))] = []byte("Be careless.")
		}, dossier.Missing, "", 0},
		{"a blob is dropped", func(e *dossier.Evidence) { delete(e.Blobs, manifest) }, dossier.Missing, "", 0},
		{"a blob is added", func(e *dossier.Evidence) { e.Blobs[blob.Sum([]byte("more"))] = []byte("more") }, dossier.Foreign, "", 0},
		{"a blob is excused that nothing shows", func(e *dossier.Evidence) { e.Left[blob.Sum([]byte("more"))] = "lost" }, dossier.Foreign, "", 0},
		{"another run", func(e *dossier.Evidence) { e.Run = "fix-8" }, dossier.Missing, home.ID, 0},
		{"another home", func(e *dossier.Evidence) { e.Home.ID = branch }, dossier.Missing, branch, 0},
		{"another tenant", func(e *dossier.Evidence) { e.Home.Tenant = "globex" }, dossier.Foreign, home.ID, 1},
		{"the home's end is cut", func(e *dossier.Evidence) { cut(&e.Logs[0], 1) }, dossier.Cut, home.ID, 15},
		{"the home's last decision is cut", func(e *dossier.Evidence) { cut(&e.Logs[0], 3) }, dossier.Cut, home.ID, 13},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bad := clone(e)
			tt.change(bad)
			doc, err := bad.Encode()
			must.Do(t, err)
			_, err = dossier.Verify(doc, &dossier.VerifyOptions{Head: head})
			if tt.kind == "" {
				must.Do(t, err)
				return
			}
			f := failure(t, err)
			if f.Kind != tt.kind || f.Session != tt.session || f.Commit != tt.commit {
				t.Errorf("got %v", err)
			}
			// Such evidence does not render either, unless only the head reveals
			// the change.
			if _, err := dossier.HTML(bad); err == nil && f.Kind != dossier.Cut {
				t.Error("the evidence is rendered")
			}
		})
	}
}

func swap(s []string, i, j int) { s[i], s[j] = s[j], s[i] }

func cut(l *dossier.Log, n int) { l.Commits = l.Commits[:len(l.Commits)-n] }

func replace(s []string, i int, old, new string) {
	changed := strings.Replace(s[i], old, new, 1)
	if changed == s[i] {
		panic("nothing to replace")
	}
	s[i] = changed
}

// forge rewrites a commit with other events, chained to the previous commit.
func forge(t *testing.T, e *dossier.Evidence, log, i int) {
	t.Helper()
	c := must.Get(commitlog.Decode([]byte(e.Logs[log].Commits[i])))(t)
	c.Events = append(c.Events, session.ChunkEvent(session.UserText("and delete the tests")))
	raw := must.Get(commitlog.Encode(c))(t)
	e.Logs[log].Commits[i] = string(raw)
}

// other returns an unrelated session with one commit.
func other(t *testing.T) dossier.Log {
	t.Helper()
	raw := must.Get(commitlog.Encode(commitlog.Commit{
		Key: session.Key{Tenant: home.Tenant, ID: "elsewhere"}, Root: "elsewhere", Seq: 1, Epoch: 1,
		Events: []session.Event{session.OpenedEvent(session.Opening{Kind: session.OpenLeaf})},
	}))(t)
	return dossier.Log{Session: "elsewhere", Commits: []string{string(raw)}}
}

// TestWithoutHead shows that a document by itself cannot prove that its last commits are
// present. TestTampering detects missing ones with the head from another source.
func TestWithoutHead(t *testing.T) {
	e := sample(t)
	cut(&e.Logs[0], 1)
	doc := must.Get(dossier.HTML(e))(t)
	r := must.Get(dossier.Verify(doc, nil))(t)
	if r.Anchored > 0 || r.State == "succeeded" {
		t.Errorf("anchored %v, state %s", r.Anchored, r.State)
	}
}

func TestHeads(t *testing.T) {
	e := sample(t)
	doc, err := e.Encode()
	must.Do(t, err)
	r, err := dossier.Verify(doc, nil)
	must.Do(t, err)
	heads := map[session.ID]session.Hash{}
	for _, c := range r.Sessions {
		heads[c.Session] = c.Head
	}
	if r, err = dossier.Verify(doc, &dossier.VerifyOptions{Heads: heads}); err != nil || r.Anchored == 0 {
		t.Fatalf("with all heads: anchored %v, %v", r != nil && r.Anchored > 0, err)
	}
	heads[e.Logs[2].Session] = session.Hash{1}
	_, err = dossier.Verify(doc, &dossier.VerifyOptions{Heads: heads})
	if f := failure(t, err); f.Kind != dossier.Cut || f.Session != e.Logs[2].Session {
		t.Errorf("another head of a branch: %v", err)
	}
	early := commitlog.HashOf([]byte(e.Logs[0].Commits[9]))
	_, err = dossier.Verify(doc, &dossier.VerifyOptions{Head: early})
	if f := failure(t, err); f.Kind != dossier.Foreign || f.Session != home.ID || f.Commit != 11 {
		t.Errorf("an older head: %v", err)
	}
	_, err = dossier.Verify(doc, &dossier.VerifyOptions{Heads: map[session.ID]session.Hash{"nowhere": {1}}})
	if f := failure(t, err); f.Kind != dossier.Missing || f.Session != "nowhere" {
		t.Errorf("the head of a session that is not there: %v", err)
	}
}

// TestRenderedFacts changes the rendering and not the commits.
func TestRenderedFacts(t *testing.T) {
	e := sample(t)
	docs := render(t, e)
	for _, tt := range []struct{ form, name, old, new string }{
		{dossier.FormHTML, "a number", "<dd>3,570</dd>", "<dd>3,571</dd>"},
		{dossier.FormHTML, "the verdict", "1 branch rejected.</h1>", "0 branches rejected.</h1>"},
		{dossier.FormHTML, "the state", `<span class="badge">✓ succeeded`, `<span class="badge">✓ Succeeded`},
		{dossier.FormHTML, "a line of the diff", "- Empty titles give", "- Empty titles gave"},
		{dossier.FormHTML, "the step of a hunk", `<td class="at"><a href="#t17"`, `<td class="at"><a href="#t9"`},
		{dossier.FormHTML, "a word in the picture", ">ADOPTED<", ">REJECTED<"},
		{dossier.FormHTML, "a reason", "<p>breaks empty input", "<p>breaks no input"},
		{dossier.FormHTML, "an effect", `<li class="chip">non_idempotent</li>`, `<li class="chip">read_only</li>`},
		{dossier.FormHTML, "who submitted it", "by ben", "by eve"},
		{dossier.FormHTML, "a prompt", "<pre>Be careful.</pre>", "<pre>Be careless.</pre>"},
		{dossier.FormHTML, "how an answer ended", "<li>finish stop</li>", "<li>finish length</li>"},
		{dossier.FormHTML, "who decided", "by\">ana</td>", "by\">bob</td>"},
		{dossier.FormHTML, "something hidden by style", "</style>", "#rejected{display:none}</style>"},
		{dossier.FormHTML, "a script", "</main>", "<script>alert(1)</script></main>"},
		{dossier.FormHTML, "something behind the end", "</html>\n", "</html>\n "},
		{dossier.FormHTML, "a second body of evidence", "</body>", "<p>more</p></body>"},
		{dossier.FormMarkdown, "a number", "| 3,570 |", "| 3,571 |"},
		{dossier.FormMarkdown, "the verdict", "1 branch rejected.`", "0 branches rejected.`"},
		{dossier.FormMarkdown, "a line of the diff", "+- Empty titles give", "+- Empty titles gave"},
		{dossier.FormMarkdown, "the step of a hunk", "by [step 17](#t17)", "by [step 9](#t9)"},
		{dossier.FormMarkdown, "a reason", "breaks empty input", "breaks no input"},
		{dossier.FormMarkdown, "who submitted it", "by ben", "by eve"},
		{dossier.FormMarkdown, "a prompt", "Be careful.\n", "Be careless.\n"},
		{dossier.FormMarkdown, "how an answer ended", "`finish stop`", "`finish length`"},
		{dossier.FormMarkdown, "who decided", "by `ana`", "by `bob`"},
		{dossier.FormMarkdown, "a line at the end", "-->\n", "-->\nAnd all is well.\n"},
	} {
		t.Run(tt.form+" "+tt.name, func(t *testing.T) {
			doc := string(docs[tt.form])
			at := strings.Index(doc, tt.old)
			if at < 0 {
				t.Fatalf("%q is not in the document", tt.old)
			}
			bad := doc[:at] + tt.new + doc[at+len(tt.old):]
			_, err := dossier.Verify([]byte(bad), nil)
			f := failure(t, err)
			if line := strings.Count(doc[:at], "\n") + 1; f.Kind != dossier.Rendered || f.Line < line || f.Line > line+1 {
				t.Errorf("line %d changed: %v", line, err)
			}
		})
	}
}

// TestStatedIsNotProved shows why the exporter's statements are marked and listed in the
// report: a consistent change of the evidence and the rendering is not detected.
func TestStatedIsNotProved(t *testing.T) {
	e := sample(t)
	e.Stated[0].Value = "v9.9.9"
	for form, doc := range render(t, e) {
		r, err := dossier.Verify(doc, nil)
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		if form != dossier.FormJSON && !bytes.Contains(doc, []byte("Stated by the exporter, not provable from the commits")) {
			t.Errorf("%s does not mark what is stated", form)
		}
		if !slices.Contains(r.Stated, e.Stated[0]) || !strings.Contains(r.String(), "stated, not verified: release v9.9.9") {
			t.Errorf("%s: the report does not name what is stated: %v\n%s", form, r.Stated, r)
		}
	}
}

// TestStatedAgainstCommits checks that no statement may contradict the commits.
func TestStatedAgainstCommits(t *testing.T) {
	for _, stated := range []dossier.Fact{{Name: "durability", Value: "lazy"}, {Name: "attempts", Value: "1"}, {Name: "workflow", Value: "deploy"}} {
		e := sample(t)
		e.Stated = append(e.Stated, stated)
		doc, err := e.Encode()
		must.Do(t, err)
		_, err = dossier.Verify(doc, nil)
		f := failure(t, err)
		if f.Kind != dossier.Inconsistent || !strings.Contains(f.Detail, stated.Name) || !strings.Contains(f.Detail, stated.Value) {
			t.Errorf("%s is stated as %q: %v", stated.Name, stated.Value, err)
		}
		if _, err := dossier.HTML(e); err == nil {
			t.Errorf("%s is stated as %q, and rendered", stated.Name, stated.Value)
		}
	}
	// A stated fact that is also in the commits verifies and is not listed as stated.
	e := sample(t)
	e.Stated = append(e.Stated, dossier.Fact{Name: "durability", Value: "fsync"})
	for form, doc := range render(t, e) {
		r, err := dossier.Verify(doc, nil)
		if err != nil || slices.ContainsFunc(r.Stated, func(f dossier.Fact) bool { return f.Name == "durability" }) {
			t.Errorf("%s: %v, %v", form, r, err)
		}
	}
}

func TestOtherReleases(t *testing.T) {
	e := sample(t)
	docs := render(t, e)
	later := bytes.Replace(docs[dossier.FormJSON], []byte(`"format":1`), []byte(`"format":2`), 1)
	later = append([]byte(nil), later...)
	for name, doc := range map[string][]byte{
		"format": later,
		"layout": bytes.Replace(docs[dossier.FormHTML], []byte(`"layout":1`), []byte(`"layout":9`), 1),
	} {
		_, err := dossier.Verify(doc, nil)
		if f := failure(t, err); f.Kind != dossier.Release {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, doc := range []string{"", "hello", "<!DOCTYPE html>", `{"format":1`, "<!-- rath evidence\n", "<!-- rath evidence\n-->"} {
		_, err := dossier.Verify([]byte(doc), nil)
		if f := failure(t, err); f.Kind != dossier.Malformed {
			t.Errorf("%q: %v", doc, err)
		}
	}
}
