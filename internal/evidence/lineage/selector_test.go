package lineage_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// playFleet plays three runs: the demo, a run that failed on a fork of the demo's home, and
// an open run in a tree of its own.
func playFleet(t testing.TB) *world {
	w := playDemo(t)
	demo := w.home
	base := w.claimed(demo)
	w.now = w.now.Add(time.Hour)
	w.home, w.run = session.Key{Tenant: "acme", ID: "again"}, "run-2"
	g, err := w.store.Claim(t.Context(), journal.Claim{
		Session: w.home, Home: w.home, Run: w.run, Revision: "r2", Root: base.Root(), Task: &journal.Task{ID: w.run, Workflow: "review", Session: w.home},
		Open: session.Opening{Kind: session.OpenFork, Parents: []session.Link{w.link(base)}},
	})
	w.must(err)
	w.attempt = g.Attempt
	s := w.model(g.Session, "0", "critic", "", call("c9", "grep"))
	s = w.tool(s, "0.0", "critic", "grep", "c9", "finds nothing", "")
	w.end(s, run.Failed, "no luck")
	w.now = w.now.Add(time.Hour)
	w.start("other", "run-3", session.UserText("wait for it"))
	return w
}

// demo returns the home of the first run.
func (w *world) demo(g *lineage.Graph) session.Key {
	w.t.Helper()
	s, err := g.Session(session.Key{Tenant: "acme", ID: "again"})
	w.must(err)
	return session.Key{Tenant: "acme", ID: s.Root}
}

// claimed returns the latest value of a session.
func (w *world) claimed(k session.Key) session.Session {
	w.t.Helper()
	s, err := w.values.At(w.t.Context(), session.Ref{Key: k})
	w.must(err)
	return s
}

func selected(t *testing.T, g *lineage.Graph, now time.Time, text string) []string {
	t.Helper()
	s, err := lineage.ParseSelector(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var ids []string
	for _, r := range g.Select("acme", s, now) {
		ids = append(ids, string(r.ID))
	}
	slices.Sort(ids)
	return ids
}

func TestSelect(t *testing.T) {
	w := playFleet(t)
	g := w.graph()
	demo := w.demo(g).ID
	all := "run-2 run-3 run-7f3a"
	tests := []struct{ where, want string }{
		{"workflow=fix", "run-3 run-7f3a"},
		{"workflow = 'review'", "run-2"},
		{`workflow="review"`, "run-2"},
		{"workflow!=fix", "run-2"},
		{"not workflow=fix", "run-2"},
		{"NOT NOT workflow=fix", "run-3 run-7f3a"},
		{"workflow=f*", "run-3 run-7f3a"},
		{"workflow=*", all},
		{"run=run-*", all},
		{"run=run-*a", "run-7f3a"},
		{"run=*-7*a", "run-7f3a"},
		{"run=*3*3*", ""},
		{"tool=grep", "run-2"},
		{"tool!=grep", "run-3 run-7f3a"},
		{"tool=edit_file", "run-7f3a"},
		{"tool in (grep, edit_file)", "run-2 run-7f3a"},
		{"tool not in (grep, edit_file)", "run-3"},
		{"agent=coder", "run-7f3a"},
		{"agent=nobody", ""},
		{"model=scripted", "run-2 run-7f3a"},
		{"node=node-a", all},
		{"state=failed", "run-2"},
		{"status=failed", "run-2"},
		{"status in (failed,running)", "run-2 run-3"},
		{"state=*ed", "run-2 run-7f3a"},
		{"code=error", "run-2"},
		{"revision=r2", "run-2"},
		{"name='second try'", "run-7f3a"},
		{"session=again", "run-2"},
		{"session=other or session=again", "run-2 run-3"},
		{"under=" + string(demo), "run-2 run-7f3a"},
		{"under=again", "run-2"},
		{"under=nothing", ""},
		{"quarantined=yes", ""},
		{"quarantined=no", all},
		{"older=90m", "run-7f3a"},
		{"older=30m", "run-2 run-7f3a"},
		{"older=1d", ""},
		{"not older=90m", "run-2 run-3"},
		{"state=failed or workflow=fix and tool=edit_file", "run-2 run-7f3a"},
		{"(state=failed or workflow=fix) and tool=edit_file", "run-7f3a"},
		{"not (state=failed or state=running)", "run-7f3a"},
		{"tool=grep and status=failed and under=" + string(demo) + " and not agent=x", "run-2"},
	}
	for _, tt := range tests {
		if got := strings.Join(selected(t, g, w.now, tt.where), " "); got != tt.want {
			t.Errorf("%s chooses %q, want %q", tt.where, got, tt.want)
		}
		s := must.Get(lineage.ParseSelector(tt.where))(t)
		if again := strings.Join(selected(t, g, w.now, s.String()), " "); again != tt.want {
			t.Errorf("%s, written as %s, chooses %q", tt.where, s, again)
		}
	}
	if n := len(g.Select("acme", nil, w.now)); n != 3 {
		t.Errorf("nil chooses %d", n)
	}
	if n := len(g.Select("globex", nil, w.now)); n != 0 {
		t.Errorf("%d runs of another tenant", n)
	}
}

func TestSelectorErrors(t *testing.T) {
	tests := []struct {
		text string
		at   int
		want string
	}{
		{"", 0, `want a field, "not" or "(", found the end`},
		{"   ", 3, `found the end at character 4`},
		{"tool", 4, `want "=", "!=" or "in" after tool, found the end`},
		{"tool=", 5, "want a value of tool, found the end"},
		{"tool==x", 5, `want a value of tool, found "="`},
		{"tool=x && agent=y", 7, `found "&"`},
		{"tool=x agent=y", 7, `want "and", "or" or the end, found "agent" at character 8`},
		{"colour=red", 0, `want a field: run, workflow,`},
		{"tool=x and", 10, `want a field, "not" or "(", found the end`},
		{"(tool=x", 7, `want "and", "or" or ")", found the end`},
		{"tool=x)", 6, `want "and", "or" or the end, found ")"`},
		{"tool in x", 8, `want "(" after in, found "x"`},
		{"tool in ()", 9, `want a value of tool, found ")"`},
		{"tool in (a b)", 11, `want "," or ")", found "b"`},
		{"tool not x", 9, `want "in", found "x"`},
		{"state=lost", 6, `want a state: queued, running, waiting`},
		{"under=s*", 6, "want under without a star"},
		{"quarantined=maybe", 12, "want yes or no"},
		{"older=soon", 6, "want an age, such as"},
		{"older=-5m", 6, "want an age, such as"},
		{"older=99999999999d", 6, "want an age, such as"},
		{"name='fast", 10, `want the closing ', found the end`},
		{"naïve=x", 0, `found "naïve"`},
		{"name=é €", 7, `found "€" at character 8`},
		{"tool=\xff", 0, "want UTF-8"},
		{strings.Repeat("(", 60) + "tool=x" + strings.Repeat(")", 60), 51, "want at most 50 levels"},
		{strings.Repeat("x", lineage.MaxSelector+1), 0, "want at most 4096 bytes"},
	}
	for _, tt := range tests {
		_, err := lineage.ParseSelector(tt.text)
		e, ok := errors.AsType[*lineage.SelectorError](err)
		if !ok {
			t.Errorf("%.40q: %v", tt.text, err)
			continue
		}
		if e.At != tt.at || !strings.Contains(e.Error(), tt.want) {
			t.Errorf("%.40q: at %d: %v; want %d, %s", tt.text, e.At, e, tt.at, tt.want)
		}
	}
}

func TestSelectorCaret(t *testing.T) {
	_, err := lineage.ParseSelector("tool=x && agent=y")
	e, _ := errors.AsType[*lineage.SelectorError](err)
	if got, want := e.Caret(80), "tool=x && agent=y\n       ^"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	long := strings.Repeat("tool=x or ", 30) + "colour=red or " + strings.Repeat("tool=x or ", 30)
	_, err = lineage.ParseSelector(long)
	e, _ = errors.AsType[*lineage.SelectorError](err)
	text, mark, _ := strings.Cut(e.Caret(40), "\n")
	if len(text) != 40 || !strings.HasPrefix(text[len(mark)-1:], "colour=red") {
		t.Errorf("got\n%s\n%s", text, mark)
	}
}

func TestSelectorBind(t *testing.T) {
	s := must.Get(lineage.ParseSelector("under=ab and (session in (c, d*) or run=e) and tool=x"))(t)
	bound := must.Get(s.Bind(func(field, value string) (string, error) { return field + "-" + value, nil }))(t)
	if got, want := bound.String(), "under=under-ab and (session in (session-c, d*) or run=run-e) and tool=x"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := s.String(); !strings.Contains(got, "under=ab") {
		t.Errorf("the selector itself changed: %s", got)
	}
	nobody := errors.New("nobody")
	if _, err := s.Bind(func(string, string) (string, error) { return "", nobody }); !errors.Is(err, nobody) {
		t.Errorf("got %v", err)
	}
}

func TestSelectorFieldsAreDocumented(t *testing.T) {
	for _, f := range lineage.SelectorFields() {
		if f.Name == "" || f.Doc == "" || len(f.Doc) > 90 {
			t.Errorf("%+v", f)
		}
		value := map[string]string{"state": "failed", "older": "1h", "quarantined": "no", "branch": "yes"}[f.Name]
		if value == "" {
			value = "x"
		}
		if _, err := lineage.ParseSelector(f.Name + "=" + value); err != nil {
			t.Error(err)
		}
	}
}

// FuzzParseSelector checks that the text of a parsed selector parses to an equal selector,
// which selects the same runs.
func FuzzParseSelector(f *testing.F) {
	for _, text := range []string{
		"tool=shell and status=failed and under=S1 and not agent=x", "a=b", `name="a ""b"" c" or tool in (x,'y z')`, "not not (older=2h)",
		"state=running and(tool=x or not tool!=y)", "IN in (in)", "not", "((((", "tool not in (a,b,c)", "older=7d", "name=''",
	} {
		f.Add(text)
	}
	w := playFleet(f)
	g := w.graph()
	f.Fuzz(func(t *testing.T, text string) {
		s, err := lineage.ParseSelector(text)
		if err != nil {
			e, ok := errors.AsType[*lineage.SelectorError](err)
			if !ok || e.At < 0 || e.At > len(text) || e.Want == "" {
				t.Fatalf("%q: %#v", text, err)
			}
			_ = e.Caret(40)
			return
		}
		again, err := lineage.ParseSelector(s.String())
		if err != nil && len(s.String()) <= lineage.MaxSelector {
			t.Fatalf("%q is written as %q, which is not read: %v", text, s, err)
		}
		if err == nil && again.String() != s.String() {
			t.Fatalf("%q is written as %q, and that as %q", text, s, again)
		}
		if err == nil {
			if a, b := fmt.Sprint(g.Select("acme", s, w.now)), fmt.Sprint(g.Select("acme", again, w.now)); a != b {
				t.Fatalf("%q chooses %s, written as %q %s", text, a, s, b)
			}
		}
	})
}
