package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func TestMain(m *testing.M) { flowtest.Main(m) }

// fleet returns the workflows that these tests offer.
func fleet(t testing.TB) (*engine.Registry, Offers) {
	t.Helper()
	r := &engine.Registry{}
	agent := func(name, prompt string) func() flow.Workflow {
		return func() flow.Workflow { return &flow.Agent{Name: name, Prompt: prompt} }
	}
	for _, g := range []flow.Registration{
		{Name: "write", Description: "Writes a draft.", Revision: "1", New: agent("writer", "You write.")},
		{Name: "review", Description: "Reads a draft and says what is wrong.", Revision: "1", New: agent("reviewer", "You review.")},
		{Name: "needy", Description: "Needs an input.", Revision: "1", Input: json.RawMessage(`{"type":"object"}`), New: agent("needy", "You need.")},
		{Name: "broken", Description: "Fails.", Revision: "1", Input: json.RawMessage(`{"type":"object"}`), New: func() flow.Workflow {
			return flow.Func(func(_ context.Context, s session.Session) (session.Session, error) {
				return s, errors.New("it is broken")
			})
		}},
	} {
		must.Do(t, r.Register(g))
	}
	offers := func(context.Context, ...string) ([]messages.Workflow, error) {
		var all []messages.Workflow
		for _, g := range r.All() {
			all = append(all, messages.Workflow{Name: g.Name, Description: g.Description, Input: g.Input, Pool: "default"})
		}
		return all, nil
	}
	for _, g := range Registrations(offers) {
		must.Do(t, r.Register(g))
	}
	return r, offers
}

// build makes one of the two workflows for a task.
func build(r *engine.Registry, name, input string) (flow.Workflow, error) {
	g, _ := r.Lookup(name)
	return g.NewFor(flow.Info{Input: json.RawMessage(input)})
}

// play runs a workflow to its end in memory.
func play(t *testing.T, r *engine.Registry, script, name, input string) (session.Session, error) {
	t.Helper()
	w, err := build(r, name, input)
	if err != nil {
		return session.Session{}, err
	}
	rt := &inprocess.Runtime{Runtime: engine.Runtime{Models: model(t, script), Workflows: r}}
	return rt.Run(t.Context(), w, session.Session{})
}

func model(t *testing.T, script string) *scripted.Model {
	t.Helper()
	data := must.Get(os.ReadFile(script))(t)
	parsed := must.Get(scripted.Parse(script, data))(t)
	m := must.Get(scripted.New(parsed, nil))(t)
	return m
}

func texts(s session.Session) []string {
	var all []string
	for _, c := range s.Chunks() {
		all = append(all, c.Text())
	}
	return all
}

// TestLaggingOffers finds a named workflow even if the read of the registry lags behind.
func TestLaggingOffers(t *testing.T) {
	r, offers := fleet(t)
	for i, input := range []string{`{"prompt":"write a note","workflows":["write","review"]}`, `{"prompt":"go","branches":[{"name":"a","workflow":"write"}]}`} {
		g := Registrations(func(ctx context.Context, named ...string) ([]messages.Workflow, error) {
			all, err := offers(ctx)
			return slices.DeleteFunc(all, func(w messages.Workflow) bool { return !slices.Contains(named, w.Name) }), err
		})[i]
		w := must.Get(g.NewFor(flow.Info{Input: json.RawMessage(input)}))(t)
		rt := &inprocess.Runtime{Runtime: engine.Runtime{Models: model(t, "testdata/"+g.Name+".txtar"), Workflows: r}}
		if _, err := rt.Run(t.Context(), w, session.Session{}); err != nil {
			t.Errorf("%s: %v", g.Name, err)
		}
	}
}

func TestAutoChoosesUntilDone(t *testing.T) {
	r, _ := fleet(t)
	s := must.Get(play(t, r, "testdata/auto.txtar", Auto, `"write a note"`))(t)
	if got, want := texts(s), []string{"write a note", "A draft of the note.", "The draft is fine."}; !slices.Equal(got, want) {
		t.Errorf("the session says %q, want %q", got, want)
	}
}

func TestAutoIsBounded(t *testing.T) {
	r, _ := fleet(t)
	s, err := play(t, r, "testdata/auto.txtar", Auto, `{"prompt":"write a note","rounds":1}`)
	if !errors.Is(err, flow.ErrMaxRounds) || !strings.Contains(err.Error(), "raise rounds") {
		t.Errorf("after one round: %v", err)
	}
	if !strings.Contains(strings.Join(texts(s), "|"), "A draft") {
		t.Errorf("the session lost what was done: %q", texts(s))
	}
}

// flaky adds a workflow to a fleet that fails whenever it is chosen.
func flaky(t *testing.T, ran *atomic.Int32) *engine.Registry {
	t.Helper()
	r, _ := fleet(t)
	must.Do(t, r.Register(flow.Registration{Name: "flaky", Description: "Does everything.", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(_ context.Context, s session.Session) (session.Session, error) {
			ran.Add(1)
			return s.With(session.UserText("half of it")), errors.New("the press\n is broken")
		})
	}}))
	return r
}

// TestAutoChoosesAgain: that a choice failed is a result. The model sees it and
// may choose another one; only if it gives up, or always fails, the run fails.
func TestAutoChoosesAgain(t *testing.T) {
	for _, tt := range []struct {
		name, script, input, want string
		rounds                    int32
		says                      []string
	}{
		{"another one", "again", `"write a note"`, "", 1, []string{"write a note", "A draft of the note."}},
		{"none", "giveup", `"write a note"`, "auto: workflow flaky: the press", 1, nil},
		{"the same again, as often as may be", "stubborn", `"write a note"`, "auto chose 16 workflows, and the last one, flaky, failed: the press", 16, nil},
		{"the same again", "stubborn", `{"prompt":"write a note","rounds":3}`, "auto chose 3 workflows, and the last one, flaky, failed: the press", 3, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var ran atomic.Int32
			r := flaky(t, &ran)
			w, err := build(r, Auto, tt.input)
			must.Do(t, err)
			rt := &inprocess.Runtime{Runtime: engine.Runtime{
				Models: model(t, "testdata/"+tt.script+".txtar"), Workflows: r, OnWarning: func(_ run.ID, text string) { t.Errorf("warning: %s", text) },
			}}
			s, err := rt.Run(t.Context(), w, session.Session{})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("it ends with %v, want %q", err, tt.want)
			}
			if got := texts(s); tt.says != nil && !slices.Equal(got, tt.says) {
				t.Errorf("the session says %q, want %q", got, tt.says)
			}
			if ran.Load() != tt.rounds {
				t.Errorf("flaky ran %d times, want %d", ran.Load(), tt.rounds)
			}
		})
	}
}

// TestAutoChoosesAgainAfterCrashes stops the router at every commit around a
// choice that fails.
func TestAutoChoosesAgainAfterCrashes(t *testing.T) {
	var ran atomic.Int32
	r := flaky(t, &ran)
	flowtest.CrashEverywhere(t, func() flow.Workflow {
		w := must.Get(build(r, Auto, ""))(t)
		return w
	}, session.New(session.UserText("write a note")), "testdata/again.txtar", &flowtest.Options{Workflows: r.All()})
}

// TestAutoSurvivesCrashes stops the router at every commit; flowtest compares the model's
// requests with the log.
func TestAutoSurvivesCrashes(t *testing.T) {
	r, _ := fleet(t)
	flowtest.CrashEverywhere(t, func() flow.Workflow {
		w := must.Get(build(r, Auto, ""))(t)
		return w
	}, session.New(session.UserText("write a note")), "testdata/auto.txtar", &flowtest.Options{Workflows: r.All()})
}

// TestAutoKeepsItsCandidates offers another list at each read. Forward runs again after
// each branch and must see the first list: another one would not match the journal.
func TestAutoKeepsItsCandidates(t *testing.T) {
	r, offers := fleet(t)
	var asked atomic.Int64
	in := must.Get(readAuto(json.RawMessage(`"write a note"`)))(t)
	w := &auto{in: in, offers: func(ctx context.Context, _ ...string) ([]messages.Workflow, error) {
		all, err := offers(ctx)
		for i := range asked.Add(1) {
			all = append(all, messages.Workflow{Name: fmt.Sprintf("z%d", i), Pool: "late"})
		}
		return all, err
	}}
	s := must.Get((&inprocess.Runtime{Runtime: engine.Runtime{Models: model(t, "testdata/auto.txtar"), Workflows: r}}).Run(t.Context(), w, session.Session{}))(t)
	if got := s.Text(); got != "The draft is fine." {
		t.Errorf("the session ends with %q", got)
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("the registry was read %d times for 3 choices", n)
	}
}

func TestFanOutMerges(t *testing.T) {
	r, _ := fleet(t)
	const branches = `"prompt":"go","branches":[{"name":"a","workflow":"write"},{"name":"b","workflow":"review"}]`
	for _, tt := range []struct {
		name, input string
		want        []string
	}{
		{"since ancestor", `{` + branches + `}`, []string{"go", "A draft of the note.", "The draft is fine."}},
		{"first that succeeded", `{` + branches + `,"merge":"pick"}`, []string{"go", "A draft of the note."}},
		{"by name", `{` + branches + `,"merge":"pick","pick":"b"}`, []string{"go", "The draft is fine."}},
		{"judged", `{` + branches + `,"merge":"best","judge":{"prompt":"You judge."}}`, []string{"go", "The draft is fine."}},
		{"summarised", `{` + branches + `,"merge":"summarise"}`, []string{"go", "Both agree."}},
		{"counted", `{"prompt":"go","branches":[{"name":"a","workflow":"write","count":3}]}`, []string{"go", "A draft of the note.", "A draft of the note.", "A draft of the note."}},
		{"warm first", `{` + branches + `,"warm_first":true}`, []string{"go", "A draft of the note.", "The draft is fine."}},
		{"one fails", `{"prompt":"go","branches":[{"name":"a","workflow":"broken"},{"name":"b","workflow":"review"}]}`, []string{"go", "The draft is fine."}},
		{"nested", `{"prompt":"go","branches":[{"name":"a","workflow":"fanout","input":{"branches":[{"name":"x","workflow":"write"},{"name":"y","workflow":"review"}],"merge":"pick","pick":"y"}},{"name":"b","workflow":"write"}]}`, []string{"go", "The draft is fine.", "A draft of the note."}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := must.Get(play(t, r, "testdata/fanout.txtar", FanOut, tt.input))(t)
			if got := texts(s); !slices.Equal(got, tt.want) {
				t.Errorf("the session says %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFanOutSurvivesCrashes(t *testing.T) {
	r, _ := fleet(t)
	for _, merge := range []string{`"best","judge":{"prompt":"You judge."}`, `"summarise"`} {
		flowtest.CrashEverywhere(t, func() flow.Workflow {
			w := must.Get(build(r, FanOut, `{"branches":[{"name":"a","workflow":"write"},{"name":"b","workflow":"review"}],"merge":`+merge+`}`))(t)
			return w
		}, session.New(session.UserText("go")), "testdata/fanout.txtar", &flowtest.Options{Workflows: r.All()})
	}
}

func TestFanOutOf256(t *testing.T) {
	r, _ := fleet(t)
	s := must.Get(play(t, r, "testdata/fanout.txtar", FanOut, `{"prompt":"go","branches":[{"name":"a","workflow":"write","count":256}]}`))(t)
	if s.Len() != 257 {
		t.Errorf("the session has %d chunks", s.Len())
	}
}

// TestFanOutWithoutEnough holds that a fan-out whose branches do not do is a
// failure that names them.
func TestFanOutWithoutEnough(t *testing.T) {
	r, _ := fleet(t)
	must.Do(t, r.Register(flow.Registration{Name: "loop", New: func() flow.Workflow { return flow.Remote{Workflow: "loop"} }}))
	for input, want := range map[string]string{
		`{"prompt":"go","branches":[{"name":"a","workflow":"loop"}]}`:                                                                          "loop -> loop -> … -> loop -> loop), at most 32 may; end the loop",
		`{"prompt":"go","branches":[{"name":"a","workflow":"broken"},{"name":"b","workflow":"broken"}]}`:                                       "0 of 2 branches succeeded, 1 are needed: a has failed: it is broken",
		`{"prompt":"go","branches":[{"name":"a","workflow":"broken"},{"name":"b","workflow":"write"}],"join":{"quorum":2}}`:                    "1 of 2 branches succeeded, 2 are needed: a has failed",
		`{"prompt":"go","branches":[{"name":"a","workflow":"broken"},{"name":"b","workflow":"write"}],"merge":"pick","pick":"a"}`:              "a",
		`{"prompt":"go","branches":[{"name":"a","workflow":"nowhere"},{"name":"b","workflow":"elsewhere"},{"name":"c","workflow":"nowhere"}]}`: "no node offers the workflow nowhere, elsewhere",
	} {
		_, err := play(t, r, "testdata/fanout.txtar", FanOut, input)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", input, err, want)
		}
	}
}

func TestBadInput(t *testing.T) {
	r, _ := fleet(t)
	one := `{"name":"a","workflow":"write"}`
	for _, tt := range []struct{ workflow, input, want string }{
		{FanOut, ``, "the body is empty"},
		{FanOut, `"text"`, "not a JSON object"},
		{FanOut, `{}`, "field branches: there are none"},
		{FanOut, `{"branches":[]}`, "field branches: there are none"},
		{FanOut, `{"branches":{}}`, "field branches: {} is no list"},
		{FanOut, `{"branches":[{"name":"a"}]}`, "field branches[0].workflow: it is missing"},
		{FanOut, `{"branches":[{"workflow":"a"}]}`, "field branches[0].name: it is missing"},
		{FanOut, `{"branches":[{"name":"a b","workflow":"a"}]}`, "field branches[0].name"},
		{FanOut, `{"branches":[{"name":"a","workflw":"a"}]}`, `did you mean "workflow"?`},
		{FanOut, `{"branches":[` + one + `,` + one + `]}`, `field branches[1].name: "a" is the name of another branch`},
		{FanOut, `{"branches":[{"name":"a","workflow":"write","count":2},{"name":"a-1","workflow":"write"}]}`, `"a-1" is the name of another branch`},
		{FanOut, `{"branches":[{"name":"gather","workflow":"write"}]}`, "gather"},
		{FanOut, `{"branches":[{"name":"a","workflow":"write","count":0}]}`, "0 is not from 1 to 1024"},
		{FanOut, `{"branches":[{"name":"a","workflow":"write","count":1025}]}`, "1025 is not from 1 to 1024"},
		{FanOut, `{"branches":[{"name":"a","workflow":"write","count":1024},{"name":"b","workflow":"write"}]}`, "more than 1024"},
		{FanOut, `{"branches":[` + one + `],"join":{"quorum":2}}`, "field join.quorum: 2 of 1 branches: choose 1 to 1"},
		{FanOut, `{"branches":[` + one + `],"join":{"quorum":0}}`, "0 is no number of branches"},
		{FanOut, `{"branches":[` + one + `,{"name":"b","workflow":"write"}],"join":{"quorum":2,"first":true}}`, "first is a quorum of one"},
		{FanOut, `{"branches":[` + one + `],"merge":"vote"}`, `field merge: "vote" is no policy: choose one of since_ancestor, pick, best, summarise`},
		{FanOut, `{"branches":[` + one + `],"merge":"pick","pick":"z"}`, `no branch is named "z"`},
		{FanOut, `{"branches":[` + one + `],"pick":"a"}`, `leave it out, or set merge to "pick"`},
		{FanOut, `{"branches":[` + one + `],"files":"mine"}`, `field files: "mine" is no rule for conflicts: choose one of ours, theirs, both, judge`},
		{FanOut, `{"branches":[` + one + `],"merge":"best","files":"both"}`, `the merge policy is best, which takes one branch with its files`},
		{FanOut, `{"branches":[` + one + `],"judge":{"prompt":"x"}}`, `leave it out, or set merge to "best"`},
		{FanOut, `{"branches":[` + one + `],"timeout_ms":-1}`, "field timeout_ms"},
		{Auto, `{"rounds":257}`, "field rounds: 257 is not from 1 to 256"},
		{Auto, `{"promt":"x"}`, `did you mean "prompt"?`},
		{Auto, `{"workflows":["auto"]}`, "auto is not chosen by auto"},
		{Auto, `{"workflows":["write","write"]}`, `"write" is there twice`},
		{Auto, `{"workflows":["a b"]}`, "field workflows[0]"},
		{Auto, `3`, "not a JSON object"},
	} {
		_, err := build(r, tt.workflow, tt.input)
		if !errors.Is(err, run.ErrMalformed) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v, want %q", tt.workflow, tt.input, err, tt.want)
		}
	}
	for input, want := range map[string]string{
		``:                                       "field prompt: it is missing, and the session is empty",
		`{"prompt":"x","workflows":["nowhere"]}`: "no node offers the workflow nowhere",
		`{"prompt":"x","workflows":["needy"]}`:   "needy needs its own input",
		`{"prompt":"x","exclude":["write","review","needy","broken"]}`: "no offered workflow can continue a session",
	} {
		if _, err := play(t, r, "testdata/auto.txtar", Auto, input); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("auto %s: %v, want %q", input, err, want)
		}
	}
}

// TestCandidates: the prompt of a selection is bounded and lists the workflows that fit,
// however many are offered.
func TestCandidates(t *testing.T) {
	var all []messages.Workflow
	for i := range 1000 {
		all = append(all, messages.Workflow{Name: fmt.Sprintf("w%03d", i), Pool: "p", Description: strings.Repeat("Sorts invoices of customers. ", 40)})
	}
	all = append(all, messages.Workflow{Name: "zebra", Pool: "p", Description: "Paints stripes\non horses."}, messages.Workflow{Name: "auto", Pool: "p"}, messages.Workflow{Name: "zebra", Pool: "q"})
	m := must.Get(candidates(t.Context(), func(context.Context, ...string) ([]messages.Workflow, error) { return all, nil }, &AutoInput{}, "please paint some stripes"))(t)
	if m.Offered != 1001 || len(m.Candidates) != maxCandidates {
		t.Errorf("%d of %d are candidates", len(m.Candidates), m.Offered)
	}
	data := must.Get(json.Marshal(m))(t)
	if len(data) > 24<<10 {
		t.Errorf("the candidates have %d bytes", len(data))
	}
	last := m.Candidates[len(m.Candidates)-1]
	if last.Name != "zebra" || last.Description != "Paints stripes on horses." {
		t.Errorf("the last candidate is %+v, want the one that matches", last)
	}
}
