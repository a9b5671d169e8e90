package schedule_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/internal/testkit/transcript"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

var update = flag.Bool("update", false, "rewrite the transcripts")

// TestTranscripts plays the transcripts of a scheduler's actions for the commits of its
// partition and the answers of nodes.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := newStage(t)
			transcript.Play(t, file, &transcript.Options{Update: *update}, s.play)
		})
	}
}

// TestNodesOfATenant lets ten thousand nodes bound to a tenant report their state: a relay
// tracks at most twice the nodes that a tenant may have, and forgets them all. Nodes for
// all tenants are tracked beside them.
func TestNodesOfATenant(t *testing.T) {
	s := newStage(t)
	s.play("submit r1")
	s.play("place work pool=default")
	nodes := func() int {
		k := session.Key{Tenant: "acme", ID: "r1"}
		return s.scheduler.Standing(s.now, k, "r1").Queue.Nodes
	}
	for i := range 10_000 {
		s.scheduler.Slots.Node(s.now, schedule.NodeState{Incarnation: fmt.Sprintf("tenant_acme_%012d", i), Pool: "default"})
	}
	s.scheduler.Slots.Node(s.now, schedule.NodeState{Incarnation: "n1", Pool: "default"})
	if n := nodes(); n != 2*schedule.MaxBound+1 {
		t.Errorf("the relay believes in %d nodes, want %d", n, 2*schedule.MaxBound+1)
	}
	s.play("sleep 1m")
	if n := nodes(); n != 0 {
		t.Errorf("after a minute without a word it believes in %d nodes", n)
	}
}

// stage is a scheduler over the logs of one partition. Nodes claim runs as they do in
// production, and the transcript holds their answers.
type stage struct {
	*testing.T
	now       time.Time
	log       *commitlog.Memory
	scheduler *schedule.Scheduler
	stores    map[string]journal.Store // by incarnation
	dead      map[string]bool
	entries   []commitlog.Entry // of the partition's stream
	folded    int
	actions   []schedule.Action
	attempts  map[run.ID]uint64
	pages     map[int][]byte // as stored
	count     int
	stored    int // commits that the stored pages know
}

func newStage(t *testing.T) *stage {
	s := &stage{
		T: t, now: time.Unix(946_684_800, 0), log: &commitlog.Memory{}, stores: map[string]journal.Store{}, dead: map[string]bool{},
		pages: map[int][]byte{}, attempts: map[run.ID]uint64{},
	}
	s.scheduler = schedule.New(s.options())
	s.count = s.scheduler.Pages.Count()
	s.scheduler.Begin(s.now)
	return s
}

func (s *stage) options() *schedule.Options {
	return &schedule.Options{Self: "relay", Known: func(node string) (alive, known bool) { return !s.dead[node], true }}
}

func (s *stage) store(node string) journal.Store {
	if s.stores[node] == nil {
		s.stores[node] = journal.NewStore(s.log, &journal.StoreOptions{Incarnation: node, Now: func() time.Time { return s.now }, OnCommit: func(e commitlog.Entry) {
			e.At.Token = uint64(len(s.entries) + 1)
			s.entries = append(s.entries, e)
		}})
	}
	return s.stores[node]
}

func (s *stage) play(line string) string {
	words, named := transcript.Args(transcript.Words(line))
	verb, ok := verbs[words[0]]
	if !ok {
		s.Fatalf("%s: there is no such verb", line)
	}
	before := len(s.entries)
	err := verb(s, words[1:], named)
	var b strings.Builder
	for _, e := range s.entries[before:] {
		fmt.Fprintf(&b, "%s/%d", e.Commit.Key.ID, e.At.Seq)
		for _, ev := range e.Commit.Events {
			if strings.HasPrefix(ev.Kind, "run.") {
				b.WriteString(" " + ev.Kind)
			}
		}
		b.WriteString("\n")
	}
	if err != nil {
		fmt.Fprintf(&b, "error %s: %v\n", run.CodeOf(err), err)
	}
	s.fold()
	next := s.scheduler.Next(s.now)
	slices.SortFunc(next, func(x, y schedule.Action) int { return cmp.Compare(text(x), text(y)) })
	for _, a := range next {
		s.actions = append(s.actions, a)
		b.WriteString("-> " + text(a) + "\n")
	}
	return b.String()
}

func (s *stage) fold() {
	for ; s.folded < len(s.entries); s.folded++ {
		if err := s.scheduler.Fold(s.now, s.entries[s.folded], journal.Facts(s.entries[s.folded].Commit)); err != nil {
			s.Fatal(err)
		}
	}
}

// text shows an action.
func text(a schedule.Action) string {
	t := [...]string{
		schedule.Dispatch: "dispatch", schedule.Announce: "tell", schedule.Signal: "signal", schedule.Store: "store", schedule.Look: "is there a log of",
		schedule.Load: "read commit", schedule.Ping: "does it live:", schedule.Place: "which pool offers",
	}[a.Kind]
	switch a.Kind {
	case schedule.Dispatch:
		t += fmt.Sprintf(" %s to %s", a.Work.Task.ID, a.Node)
		if a.Work.Task.Seen != nil {
			t += fmt.Sprintf(" seen=%d", a.Work.Task.Seen.Attempt)
		}
	case schedule.Announce, schedule.Ping:
		t += " " + a.Node
	case schedule.Signal:
		sig := a.Work.Signal
		t += " " + string(sig.To.ID)
		switch {
		case sig.Tick:
			t += " to look at the clock"
		case sig.Close != nil:
			t += " that it is closed as " + sig.Close.State
		case sig.Received != nil && sig.Received.Branch != nil:
			t += fmt.Sprintf(" that %s is %s", sig.Received.Branch.Link.ID, sig.Received.Branch.State)
		}
	case schedule.Store:
		t += fmt.Sprintf(" the result of %s: %s", a.Result.Run, a.Result.State)
		if a.Before {
			t += ", unless it is there"
		}
	case schedule.Look:
		t += " " + string(a.Session.ID)
	case schedule.Load:
		t += " " + strconv.FormatUint(a.Token, 10)
	case schedule.Place:
		t += " " + a.Workflow
	}
	if a.Grant != 0 {
		t += fmt.Sprintf(" grant=%d", a.Grant)
	}
	if a.Demand != nil {
		var heads []string
		for _, h := range a.Demand.Heads {
			heads = append(heads, fmt.Sprintf("%s batch=%v begun=%v", h.Tenant, h.Batch, h.Derived))
		}
		t += fmt.Sprintf(" demand=[%s]", strings.Join(heads, ", "))
	}
	return t
}

// verbs are the commands of a transcript.
var verbs = map[string]func(s *stage, words []string, named map[string]string) error{
	// submit RUN [tenant=T] [workflow=W] [deadline=D]: a client's task enters its log.
	"submit": func(s *stage, words []string, named map[string]string) error {
		id, k := run.ID(words[0]), session.Key{Tenant: session.Tenant(cmp.Or(named["tenant"], "acme")), ID: session.ID(words[0])}
		task := &journal.Task{ID: id, Workflow: cmp.Or(named["workflow"], "work"), Session: k}
		if d := named["deadline"]; d != "" {
			task.Deadline = s.now.Add(s.duration(d))
		}
		_, err := s.store("intake").Claim(s.Context(), journal.Claim{Session: k, Home: k, Run: id, Task: task, Enqueue: true})
		return err
	},
	// take RUN [from=NODE] [free=N]: the node of a dispatch claims the run, and answers so.
	"take": func(s *stage, words []string, named map[string]string) error {
		a := s.action(schedule.Dispatch, " "+words[0]+" to "+named["from"])
		t := *a.Work.Task
		c := journal.Claim{Session: t.Session, Home: t.Session, Run: t.ID, Seen: t.Seen}
		if b := t.Branch; b != nil {
			c.Task, c.Root, c.Open = &t, b.Root, session.Opening{Kind: session.OpenFork, Parents: []session.Link{b.Base}, Run: string(b.Parent().Run)}
		}
		g, err := s.store(a.Node).Claim(s.Context(), c)
		if err == nil {
			s.attempts[t.ID] = g.Attempt
		}
		s.done(a, schedule.Outcome{Result: schedule.Settled, Free: s.number(cmp.Or(named["free"], "0"))})
		return err
	},
	// refuse RUN busy|not-offered|silent|gone|failed: the node of a dispatch rejects it.
	"refuse": func(s *stage, words []string, _ map[string]string) error {
		s.done(s.action(schedule.Dispatch, " "+words[0]+" to "), schedule.Outcome{Free: -1, Result: map[string]schedule.Result{
			"failed": schedule.Failed, "busy": schedule.Busy, "not-offered": schedule.NotOffered, "silent": schedule.Silent, "gone": schedule.Gone, "crowded": schedule.Crowded, "clearing": schedule.Clearing,
		}[words[1]]})
		return nil
	},
	// apply SESSION: a signal reaches its session, by the relay.
	"apply": func(s *stage, words []string, _ map[string]string) error {
		a := s.action(schedule.Signal, " "+words[0]+" ")
		err := s.store("relay").Apply(s.Context(), *a.Work.Signal)
		s.done(a, schedule.Outcome{Result: schedule.Settled})
		return err
	},
	// lose SESSION: a signal gets no answer.
	"lose": func(s *stage, words []string, _ map[string]string) error {
		s.done(s.action(schedule.Signal, " "+words[0]+" "), schedule.Outcome{})
		return nil
	},
	// place WORKFLOW pool=P,... [batch]: the registry's answer with the pools that offer a
	// workflow; without a pool it does not answer.
	"place": func(s *stage, words []string, named map[string]string) error {
		var o schedule.Outcome
		for name := range strings.SplitSeq(named["pool"], ",") {
			if name != "" {
				o.Result, o.Pools = schedule.Settled, append(o.Pools, schedule.Pool{Name: name, Batch: slices.Contains(words, "batch")})
			}
		}
		s.done(s.action(schedule.Place, " "+words[0]), o)
		return nil
	},
	// stored RUN [failed]: the result of a run is stored, or is not.
	"stored": func(s *stage, words []string, _ map[string]string) error {
		o := schedule.Outcome{Result: schedule.Settled}
		if slices.Contains(words, "failed") {
			o.Result = schedule.Failed
		}
		s.done(s.action(schedule.Store, " "+words[0]+":"), o)
		return nil
	},
	// read: the commit that the relay asked for is read.
	"read": func(s *stage, _ []string, _ map[string]string) error {
		a := s.action(schedule.Load, "")
		s.done(a, schedule.Outcome{Result: schedule.Settled, Entry: &s.entries[a.Token-1]})
		return nil
	},
	// look SESSION [found]: whether a log exists.
	"look": func(s *stage, words []string, _ map[string]string) error {
		s.done(s.action(schedule.Look, " "+words[0]), schedule.Outcome{Result: schedule.Settled, Found: slices.Contains(words, "found")})
		return nil
	},
	// record NODE RUN EVENT [field=value …]: the run's execution on a node records an event.
	"record": func(s *stage, words []string, named map[string]string) error {
		id := run.ID(words[1])
		switch words[2] {
		case "ended":
			return s.record(words[0], id, journal.KindEnded, journal.Ended{Attempt: s.attempts[id], Run: id, State: run.State(cmp.Or(named["state"], "succeeded")), Workflow: "work"})
		case "released":
			return s.record(words[0], id, journal.KindReleased, journal.Released{Attempt: s.attempts[id], Reason: "shutdown", Run: id, Workflow: "work"})
		case "waiting":
			w := journal.Wait{Kind: run.WaitTimer, Path: "0", Due: s.now.Add(s.duration(named["due"])).UnixMilli()}
			return s.record(words[0], id, journal.KindRunWaiting, journal.RunWaiting{Attempt: s.attempts[id], For: []journal.Wait{w}, Run: id})
		}
		k := s.home(id)
		e, err := s.log.Last(s.Context(), k)
		if err != nil {
			return err
		}
		f := journal.FanOut{
			Ancestors: []journal.Ancestor{{Run: id, Session: k.ID}}, Base: session.Link{Ref: session.Ref{Key: k}, Seq: e.At.Seq, Hash: e.At.Hash, Token: e.At.Token},
			Path: "0", Root: k.ID, Run: id, Workflow: "work",
		}
		w := journal.Wait{Kind: run.WaitBranches, Path: "0.gather"}
		for name := range strings.SplitSeq(named["branches"], ",") {
			f.Branches, w.Branches = append(f.Branches, journal.FanOutBranch{Name: name, Session: session.ID(name)}), append(w.Branches, session.ID(name))
		}
		if err := s.record(words[0], id, journal.KindFanOut, f); err != nil {
			return err
		}
		return s.record(words[0], id, journal.KindRunWaiting, journal.RunWaiting{Attempt: s.attempts[id], For: []journal.Wait{w}, Run: id})
	},
	// node NAME free=N [pool=P] [stopping]: a node reports its state.
	"node": func(s *stage, words []string, named map[string]string) error {
		s.scheduler.Slots.Node(s.now, s.state(words, named))
		return nil
	},
	// grant NODE N free=N [tenant=T]: a node keeps a slot for this relay.
	"grant": func(s *stage, words []string, named map[string]string) error {
		s.scheduler.Slots.Grant(s.now, s.state(words, named), uint64(s.number(words[1])), schedule.Head{Tenant: session.Tenant(named["tenant"])})
		return nil
	},
	// dies NODE: membership reports that a node is gone.
	"dies": func(s *stage, words []string, _ map[string]string) error {
		s.dead[words[0]] = true
		s.scheduler.Recheck(s.now)
		return nil
	},
	"sleep": func(s *stage, words []string, _ map[string]string) error {
		s.now = s.now.Add(s.duration(words[0]))
		return nil
	},
	// save: the open set is stored.
	"save": func(s *stage, _ []string, _ map[string]string) error {
		pages, _, err := s.scheduler.Pages.Take(s.scheduler.Pages.Count())
		maps.Copy(s.pages, pages)
		s.count, s.stored = s.scheduler.Pages.Count(), s.folded
		return err
	},
	// restart: another relay continues from the stored open set and the rest of the stream.
	"restart": func(s *stage, _ []string, _ map[string]string) (err error) {
		stored := make([][]byte, s.count)
		for i, page := range s.pages {
			stored[i] = page
		}
		if s.scheduler, err = schedule.Restore(s.options(), s.now, stored); err != nil {
			return err
		}
		s.folded = s.stored
		s.fold()
		s.scheduler.Begin(s.now)
		return nil
	},
	// open N: how many runs are open.
	"open": func(s *stage, words []string, _ map[string]string) error {
		if n := s.scheduler.Open(); n != s.number(words[0]) {
			s.Errorf("%d runs are open", n)
		}
		return nil
	},
}

func (s *stage) state(words []string, named map[string]string) schedule.NodeState {
	return schedule.NodeState{
		Incarnation: words[0], Pool: cmp.Or(named["pool"], "default"), Free: s.number(cmp.Or(named["free"], "0")), Stopping: slices.Contains(words, "stopping"),
	}
}

func (s *stage) home(id run.ID) session.Key {
	for _, k := range s.log.Keys() {
		if string(k.ID) == string(id) {
			return k
		}
	}
	s.Fatalf("run %s has no log", id)
	return session.Key{}
}

func (s *stage) record(node string, id run.ID, kind string, payload any) error {
	e, err := journal.NewEvent(kind, payload)
	if err != nil {
		return err
	}
	_, err = s.store(node).Commit(s.Context(), journal.Batch{Session: s.home(id), Run: id, Attempt: s.attempts[id], Events: []session.Event{e}})
	return err
}

// action returns the newest action of a kind whose text holds a part.
func (s *stage) action(kind schedule.Kind, part string) schedule.Action {
	for _, a := range slices.Backward(s.actions) {
		if a.Kind == kind && strings.Contains(text(a), part) {
			return a
		}
	}
	s.Fatalf("no action has %q", part)
	return schedule.Action{}
}

func (s *stage) done(a schedule.Action, o schedule.Outcome) {
	s.fold() // the commit comes before the answer
	s.scheduler.Done(s.now, a.ID, o)
}

func (s *stage) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.Fatal(err)
	}
	return n
}

func (s *stage) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.Fatal(err)
	}
	return d
}
