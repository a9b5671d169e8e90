package stream_test

import (
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/retention"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

var away = flag.Duration("away", time.Second, "how long TestAway keeps the streams from NATS")

// ends reads the events of records up to the end of a run.
func (r *reading) ends(id run.ID) (all []got) {
	r.t.Helper()
	for {
		all = append(all, durable(r.until(messages.EventRunEnded))...)
		if all[len(all)-1].Run == id {
			return all
		}
	}
}

func sameData(a, b got) bool { return a.data == b.data }

// prune archives and purges all trees.
func (w *world) prune() {
	w.t.Helper()
	o := conn.Options{URL: w.srv.URL(), Inbox: conn.NodeInbox}
	o.User, o.Password = w.srv.Operator()
	c := must.Get(api.Connect(w.t.Context(), &streams.Options{Options: o, Level: streams.Lazy}))(w.t)
	defer c.Conn.Close()
	all := must.Get(retention.Prune(w.t.Context(), c, &retention.Options{
		Keep: func(session.Tenant) (time.Duration, bool) { return 0, true }, Dir: w.t.TempDir(), Grace: -1,
	}))(w.t)
	if len(all) != 1 || all[0].State != retention.Archived {
		w.t.Fatalf("the prune: %+v", all)
	}
}

// TestPurged: a tree is purged while readers of it and of its tenant have streams open. Its
// sessions are archived for those who open them, or continue them. Lineage keeps the records:
// readers of the run and of the tenant get all events, behind each of the purged ones, too.
func TestPurged(t *testing.T) {
	w := newWorld(t)
	tenant := w.open("/tenant/all", "")
	defer tenant.close()
	one := w.ended(w.submit("fan"))
	tree := w.open("/tree/"+string(one.Session), "")
	defer tree.close()
	gone, ofTree := tenant.ends(one.Run), tree.ends(one.Run)
	w.prune()
	for _, path := range []string{"/tree/", "/session/"} {
		for _, id := range []string{"", ofTree[0].id, ofTree[len(ofTree)-1].id} {
			r := w.open(path+string(one.Session), id)
			if r.lines.Scan(); r.code != http.StatusGone {
				t.Errorf("%s behind %q: %d %s", path, id, r.code, r.lines.Text())
			}
			r.close()
		}
	}
	of := w.open("/run/"+string(one.Run), "")
	w.resumes("/run/"+string(one.Run), durable(of.rest()))
	of.close()
	two := w.ended(w.submit("fan"))
	want := tenant.ends(two.Run)
	for i := range gone {
		r := w.open("/tenant/all", gone[i].id)
		if r.code != http.StatusOK {
			r.lines.Scan()
			t.Fatalf("behind event %d of the purged run: %d %s", i, r.code, r.lines.Text())
		}
		if have, all := r.ends(two.Run), append(gone[i+1:len(gone):len(gone)], want...); !slices.EqualFunc(have, all, sameData) {
			t.Fatalf("behind event %d of the purged run: %d events, %v; want %d", i, len(have), kindsOf(have), len(all))
		}
		r.close()
	}
}

// TestRestart: the server of the streams is replaced while a run writes, and a reader
// continues at the other one with all events, each once, and the whole text.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	id := w.submit("agent")
	path := "/run/" + string(id)
	r := w.open(path, "")
	all := r.until(messages.EventRunStarted)
	var text strings.Builder
	for i := range 4 {
		for j := range 3 {
			piece := fmt.Sprintf("piece %d.%d. ", i, j)
			text.WriteString(piece)
			w.write(piece)
		}
		w.streams.Close()
		all = append(all, r.rest()...)
		r.close()
		w = w.another()
		r = w.open(path, r.last)
	}
	for draft(all, "0") != text.String() {
		all = append(all, r.until(messages.EventTextDelta)...)
	}
	w.write("")
	all = append(all, r.rest()...)
	r.close()
	whole := w.open(path, "")
	defer whole.close()
	if want := durable(whole.rest()); !slices.EqualFunc(durable(all), want, sameData) {
		t.Errorf("over four servers: %v, want %v", kindsOf(durable(all)), kindsOf(want))
	}
}

// TestAway: the streams have no NATS for a while, in which runs begin and end. Open streams
// stay open and get all events then, each once, and the whole text.
func TestAway(t *testing.T) {
	w := newWorld(t)
	id := w.submit("agent")
	r, tenant := w.open("/run/"+string(id), ""), w.open("/tenant/all", "")
	defer r.close()
	defer tenant.close()
	all := r.until(messages.EventRunStarted)
	tenant.position()
	var text strings.Builder
	write := func(piece string) {
		text.WriteString(piece)
		w.write(piece)
	}
	write("before ")
	for draft(all, "0") != text.String() {
		all = append(all, r.until(messages.EventTextDelta)...)
	}
	w.refuse.Store(true)
	must.Do(t, w.cut())
	const each = 20 // pieces and runs: a draft holds a bounded text
	pace := time.NewTicker(*away / each)
	defer pace.Stop()
	var runs []run.ID
	for i := range each {
		<-pace.C
		write(fmt.Sprintf("meanwhile %d ", i))
		fan := must.Get(w.near.Submit(t.Context(), "fan", messages.Task{Input: []byte(`"go"`)}))(t)
		must.Get(w.near.Wait(t.Context(), fan))(t)
		runs = append(runs, fan)
	}
	w.refuse.Store(false)
	for draft(all, "0") != text.String() {
		all = append(all, r.until(messages.EventTextDelta)...)
	}
	w.write("")
	all = append(all, r.rest()...)
	w.resumes("/run/"+string(id), durable(all))
	seen := map[string]int{}
	ends := map[run.ID]int{}
	for len(ends) <= len(runs) {
		g, ok := tenant.next()
		if !ok {
			t.Fatalf("the stream of the tenant ended, with %d of %d ends", len(ends), len(runs)+1)
		}
		if g.durable() {
			seen[g.data]++
		}
		if g.Kind == messages.EventRunEnded && (g.Run == id || slices.Contains(runs, g.Run)) {
			ends[g.Run]++
		}
	}
	for data, n := range seen {
		if n != 1 {
			t.Errorf("%d times: %s", n, data)
		}
	}
}
