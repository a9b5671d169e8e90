package stream_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/evidence/events"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/internal/web/stream"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// resumes opens a stream behind each event that has an id, and checks that it has the
// events after that one, each once. A partial record is one of the cases: its events have
// ids of their own.
func (w *world) resumes(path string, all []got) {
	w.t.Helper()
	ids := 0
	for i := range all {
		if all[i].id == "" {
			w.t.Errorf("event %d, %s, has no id", i, all[i].data)
			continue
		}
		ids++
		r := w.open(path, all[i].id)
		var rest []got
		if i == len(all)-1 {
			if r.code != http.StatusNoContent {
				w.t.Errorf("behind the last event: %d", r.code)
			}
		} else {
			rest = durable(r.rest())
		}
		r.close()
		if !slices.EqualFunc(rest, all[i+1:], func(a, b got) bool { return a.data == b.data }) {
			w.t.Fatalf("behind event %d of %d, with id %s: %d events, %v", i, len(all), all[i].id, len(rest), kindsOf(rest))
		}
	}
	if ids == 0 {
		w.t.Error("no event has an id")
	}
}

// TestRun reads a run while it works, and resumes its stream behind each event.
func TestRun(t *testing.T) {
	w := newWorld(t)
	id := w.submit("agent")
	r := w.open("/run/"+string(id), "")
	defer r.close()
	if r.header.Get("Content-Type") != "text/event-stream" || r.header.Get("X-Accel-Buffering") != "no" || r.header.Get("Cache-Control") != "no-store" {
		t.Errorf("header %v", r.header)
	}
	all := r.until(messages.EventRunStarted)
	w.write("The answer ")
	all = append(all, r.until(messages.EventTextDelta)...)
	w.write("is 42.", "")
	all = append(all, r.rest()...)
	w.ended(id)
	want := []messages.EventKind{messages.EventSessionChanged, messages.EventRunQueued, messages.EventRunStarted, messages.EventStepDone, messages.EventRunEnded}
	if kinds := kindsOf(durable(all)); !slices.Equal(kinds, want) {
		t.Errorf("events %v, want %v", kinds, want)
	}
	i := slices.IndexFunc(all, func(g got) bool { return g.Kind == messages.EventStepDone && g.Agent != "" })
	if i < 0 || draft(all[:i], all[i].Step) != "The answer is 42." || all[i].Usage.Output != 2 {
		t.Errorf("the draft is %q, and the events %v", draft(all, all[max(i, 0)].Step), kindsOf(all))
	}
	if n := slices.IndexFunc(all, func(g got) bool { return g.Kind == messages.EventStepStarted }); n < 0 || n > i {
		t.Errorf("the step has no start: %v", kindsOf(all))
	}
	w.resumes("/run/"+string(id), durable(all))
}

// TestRepair repairs the lineage while a run is read: the reader has each event once, and
// resumes behind each.
func TestRepair(t *testing.T) {
	w := newWorld(t)
	id := w.submit("agent")
	path := "/run/" + string(id)
	r := w.open(path, "")
	defer r.close()
	all := r.until(messages.EventRunStarted)
	w.write("It begins. ")
	if parts := must.Get(w.client.Lineage.Repair(t.Context()))(t); len(parts) == 0 {
		t.Error("the repair had nothing to do")
	}
	w.write("It ends.", "")
	all = append(all, r.rest()...)
	w.ended(id)
	want := w.open(path, "")
	defer want.close()
	if !slices.EqualFunc(durable(all), durable(want.rest()), func(a, b got) bool { return a.data == b.data }) {
		t.Errorf("with a repair: %v", kindsOf(durable(all)))
	}
	w.resumes(path, durable(all))
}

// gated is a connection that takes no bytes until its gate opens.
type gated struct {
	*httptest.ResponseRecorder
	blocked chan struct{} // closed by the first write
	once    sync.Once
	gate    chan struct{}
}

func (g *gated) SetReadDeadline(time.Time) error  { return nil }
func (g *gated) SetWriteDeadline(time.Time) error { return nil }

func (g *gated) Write(p []byte) (int, error) {
	g.once.Do(func() { close(g.blocked) })
	<-g.gate
	return g.ResponseRecorder.Write(p)
}

// TestSlow: a reader that takes nothing while more comes than a topic remembers is cut, and
// the stream names the reason. It connects again and has all events of records.
func TestSlow(t *testing.T) {
	w := newWorld(t)
	id := w.submit("agent")
	path := "/run/" + string(id)
	fast := w.open(path, "")
	defer fast.close()
	fast.until(messages.EventStepStarted)
	slow := &gated{ResponseRecorder: httptest.NewRecorder(), blocked: make(chan struct{}), gate: make(chan struct{})}
	var served sync.WaitGroup
	served.Go(func() {
		req := httptest.NewRequestWithContext(access.With(t.Context(), w.caller.Load()), http.MethodGet, path, nil)
		w.streams.Serve(slow, req, stream.Selection{Run: id})
	})
	<-slow.blocked
	piece := strings.Repeat("x", 100_000)
	for range 60 {
		w.write(piece)
	}
	w.write("break")
	fast.until(messages.EventTextVoid) // the topic has all of it
	close(slow.gate)
	served.Wait()
	body := slow.Body.String()
	if !strings.HasSuffix(body, "\n\n") || !strings.Contains(body[strings.LastIndex(body, "event: "):], `"code":"slow"`) || !strings.Contains(body, "event: "+string(messages.EventStreamCut)) {
		t.Errorf("the stream ends with %.300s", body[strings.LastIndex(body, "event: "):])
	}
	_, last, _ := strings.Cut(body[strings.LastIndex(body, "id: "):], "id: ")
	last, _, _ = strings.Cut(last, "\n")
	again := w.open(path, last)
	defer again.close()
	w.write("It ends.", "")
	if all := again.rest(); len(all) == 0 || all[len(all)-1].Kind != messages.EventRunEnded {
		t.Errorf("connected again: %v", kindsOf(all))
	}
	w.ended(id)
}

// TestTree reads a tree with branches, of which records have several events, and resumes
// its stream behind each of them.
func TestTree(t *testing.T) {
	w := newWorld(t)
	root := w.ended(w.submit("fan")).Session
	path := "/tree/" + string(root)
	r := w.open(path, "")
	defer r.close()
	all := durable(r.until(messages.EventRunEnded))
	for !ofRoot(all) { // the end of a branch may be stored after that of the root
		all = append(all, durable(r.until(messages.EventRunEnded))...)
	}
	several := 0
	for i := range all[1:] {
		if *all[i].Place == *all[i+1].Place && all[i].Session == all[i+1].Session {
			several++
		}
	}
	if several < 2 {
		t.Errorf("%d records have several events: %v", several, kindsOf(all))
	}
	for i := range all {
		next := w.open(path, all[i].id)
		for j := i + 1; j < len(all); j++ {
			g, ok := next.next()
			for ok && !g.durable() {
				g, ok = next.next()
			}
			if !ok || g.data != all[j].data {
				t.Fatalf("behind event %d: event %d is %s, want %s", i, j, g.data, all[j].data)
			}
		}
		next.close()
	}
}

// ofRoot reports whether the run that opened the three branches has ended, and they have.
func ofRoot(all []got) bool {
	ends := 0
	for i := range all {
		if all[i].Kind == messages.EventRunEnded {
			ends++
		}
	}
	return ends == 4
}

// TestDrafts: a reader that connects in the middle of an answer gets all of the draft that
// the server has, or the end of it and the byte at which that begins.
func TestDrafts(t *testing.T) {
	w := newWorld(t)
	id := w.submit("agent")
	path := "/run/" + string(id)
	first := w.open(path, "")
	first.until(messages.EventStepStarted) // from here on no delta is missing
	long := strings.Repeat("x", 3000)
	w.write("It begins. ", long)
	all := first.until(messages.EventTextDelta)
	for draft(all, "0") != "It begins. "+long {
		all = append(all, first.until(messages.EventTextDelta)...)
	}
	second := w.open(path, first.last)
	from := second.until(messages.EventTextDelta)
	if from[0].Kind != messages.EventTextVoid || draft(from, "0") != "It begins. "+long {
		t.Errorf("another reader gets %v: %.40q", kindsOf(from), draft(from, "0"))
	}
	first.close()
	second.close()
	w.streams.Close() // another server knows nothing of the draft
	other := w.another()
	third := other.open(path, first.last)
	defer third.close()
	from = third.until(messages.EventTextDelta)
	e := from[len(from)-1]
	if e.From != len("It begins. ")+len(long)-len(e.Text) || e.Text == "" || e.N != 2 || e.Try != 1 || e.Attempt != 1 {
		t.Errorf("a reader of another server gets %v: from %d, %d bytes, n %d", kindsOf(from), e.From, len(e.Text), e.N)
	}
	w.write(" It ends.", "break")
	from = append(from, third.until(messages.EventTextVoid)...)
	w.write("Again.", "")
	from = append(from, third.rest()...)
	if got := draft(from, "0"); got != "Again." {
		t.Errorf("the draft of the second try is %q", got)
	}
	if last := from[len(from)-1]; last.Kind != messages.EventRunEnded {
		t.Errorf("the stream ends with %s", last.data)
	}
}

// TestRefused: selections and positions that a stream cannot have.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	one, two := w.ended(w.submit("fan")), w.ended(w.submit("fan"))
	path := "/run/" + string(one.Run)
	r := w.open(path, "")
	all := r.rest()
	r.close()
	mine := all[len(all)/2].id
	cursor, rest, _ := strings.Cut(mine, ".")
	scope := events.Scope{Tenant: session.DefaultTenant, Root: one.Session}
	future := must.Get(events.ParseToken(mine, scope))(t)
	future.Cursor.TakeAll(1, all[0].Place.Partition, 1<<40)
	for name, c := range map[string]struct {
		path, id string
		code     int
		text     string
	}{
		"a run that there is not":     {"/run/nobody", "", 404, "nobody"},
		"a session that there is not": {"/session/nobody", "", 404, "nobody"},
		"no position":                 {path, "17", 400, "not a position"},
		"a position that was cut":     {path, cursor[1:] + "." + rest, 400, "not a position"},
		"of another tree":             {"/run/" + string(two.Run), mine, 400, "another stream"},
		"of a tenant":                 {"/tenant/all", mine, 400, "another stream"},
		"of the future":               {path, future.Token(scope), 400, "behind the end of the stream"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			r := w.open(c.path, c.id)
			defer r.close()
			r.lines.Scan()
			if r.code != c.code || !strings.Contains(r.lines.Text(), c.text) {
				t.Errorf("%d %s, want %d and %q", r.code, r.lines.Text(), c.code, c.text)
			}
		})
	}
}

// TestTenant reads what happens in a tenant from now on, by workflow and by state.
func TestTenant(t *testing.T) {
	w := newWorld(t)
	w.ended(w.submit("fan"))
	all, fans, ends := w.open("/tenant/all", ""), w.open("/tenant/all?workflow=agent", ""), w.open("/tenant/all?state=succeeded", "")
	defer all.close()
	defer fans.close()
	defer ends.close()
	one := w.submit("fan")
	w.ended(one)
	two := w.submit("agent")
	w.write("Hello.", "")
	w.ended(two)
	for name, c := range map[string]struct {
		r    *reading
		runs []run.ID
	}{"all": {all, []run.ID{one, two}}, "workflow": {fans, []run.ID{two}}, "state": {ends, []run.ID{one, two}}} {
		var runs []run.ID
		for !slices.Contains(runs, two) {
			for _, g := range c.r.until(messages.EventRunEnded) {
				if g.Kind == messages.EventRunEnded && slices.Contains([]run.ID{one, two}, g.Run) {
					runs = append(runs, g.Run)
				}
				if g.Kind == messages.EventTextDelta {
					t.Errorf("%s: a draft", name)
				}
				if name == "state" && g.State != string(run.Succeeded) || name == "workflow" && g.Run != two {
					t.Errorf("%s: %s", name, g.data)
				}
			}
		}
		if !slices.Equal(runs, c.runs) {
			t.Errorf("%s: ends of %v, want %v", name, runs, c.runs)
		}
	}
}

// TestAccessEnds: a stream ends with the access of its caller, and one that connects again
// gets no content.
func TestAccessEnds(t *testing.T) {
	w := newWorld(t)
	id := w.submit("agent")
	over := make(chan struct{})
	w.caller.Store(w.caller.Load().EndsWith(over))
	r := w.open("/run/"+string(id), "")
	defer r.close()
	all := r.until(messages.EventRunStarted)
	close(over)
	all = append(all, r.rest()...)
	if last := all[len(all)-1]; last.Kind != messages.EventSessionEnded {
		t.Errorf("the stream ends with %s", last.data)
	}
	again := w.open("/run/"+string(id), r.last)
	defer again.close()
	if again.code != http.StatusNoContent {
		t.Errorf("connecting again: %d", again.code)
	}
	w.write("x", "")
	w.ended(id)
}

// TestNarrow: a narrow token sees the runs that its user submitted to its workflows, and no
// others, also among those of a tenant.
func TestNarrow(t *testing.T) {
	w := newWorld(t)
	mine, other := w.submit("fan"), w.submit("agent")
	w.write("x", "")
	w.ended(other)
	tree := w.ended(mine).Session
	c := *w.caller.Load()
	c.User, c.Only = string(messages.UserAnonymous), []string{"fan"}
	w.caller.Store(&c)
	for path, code := range map[string]int{
		"/run/" + string(mine): 200, "/run/" + string(other): 404, "/tree/" + string(tree): 200,
		"/tree/" + string(w.sessionOf(other)): 404,
	} {
		r := w.open(path, "")
		if r.code != code {
			t.Errorf("%s: %d, want %d", path, r.code, code)
		}
		r.close()
	}
	r := w.open("/tenant/all?after=end", "")
	defer r.close()
	hidden := w.submit("agent")
	w.write("x", "")
	w.ended(hidden)
	seen := w.submit("fan")
	w.ended(seen)
	for done := false; !done; {
		for _, g := range r.until(messages.EventRunEnded) {
			if g.Run == hidden || g.Run == "" {
				t.Errorf("it sees %s", g.data)
			}
			done = done || g.Run == seen
		}
	}
}

func (w *world) sessionOf(id run.ID) session.ID {
	w.t.Helper()
	r, err := w.client.Runs.Get(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Session
}

// TestLinkLost: the connection to NATS breaks while a run writes, and a reader gets all
// events and the whole text.
func TestLinkLost(t *testing.T) {
	w := newWorld(t)
	id := w.submit("agent")
	r := w.open("/run/"+string(id), "")
	defer r.close()
	all := r.until(messages.EventRunStarted)
	var want strings.Builder
	for i := range 20 {
		piece := fmt.Sprintf("piece %d. ", i)
		want.WriteString(piece)
		w.write(piece)
		if i%5 == 2 {
			if err := w.cut(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for draft(all, "0") != want.String() {
		all = append(all, r.until(messages.EventTextDelta)...)
	}
	w.write("")
	all = append(all, r.rest()...)
	if all[len(all)-1].Kind != messages.EventRunEnded {
		t.Errorf("the stream ends with %s", all[len(all)-1].data)
	}
	w.resumes("/run/"+string(id), durable(all))
}
