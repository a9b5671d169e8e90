package flowtest_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// writes returns a branch that writes files.
func writes(name string, files ...[2]string) flow.Branch {
	return flow.Branch{Name: name, Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		var err error
		for _, f := range files {
			if s, err = written(ctx, s, f[0], f[1]); err != nil {
				return s, err
			}
		}
		return s, nil
	})}
}

// together merges the files that three branches write and reads the result. With opened,
// the sandbox is open before the branches begin.
func together(opened bool, onConflict string, judge *flow.Agent) flow.Func {
	return func(ctx context.Context, s session.Session) (session.Session, error) {
		var err error
		if opened {
			if s, err = written(ctx, s, "seen.txt", "seen\n"); err != nil {
				return s, err
			}
		}
		j, err := flow.FanOut(ctx, s, []flow.Branch{
			writes("x", [2]string{"a.txt", "ONE\ntwo\nthree\nfour\nfive\n"}, [2]string{"x.txt", "x\n"}),
			writes("y", [2]string{"a.txt", "uno\ntwo\nthree\nfour\nFIVE\n"}, [2]string{"b.txt", "y\n"}),
			writes("z", [2]string{"z.txt", "z\n"}),
		}, nil)
		if err != nil {
			return s, err
		}
		p := flow.SinceAncestor()
		if onConflict == flow.TakeInOrder {
			p = taken{2, 1, 0}
		}
		if s, err = flow.Merge(ctx, j, flow.WithFiles(p, onConflict, judge)); err != nil {
			return s, err
		}
		list, _ := tool.ByName("run_shell_command")
		s, _, err = flow.CallTool(ctx, s, list, map[string]string{"cmd": "for f in *; do echo $f: $(cat $f); done"})
		return s, err
	}
}

// taken is a policy that takes outcomes in an order.
type taken []int

func (p taken) Decide(context.Context, *flow.Joined) (flow.Verdict, error) {
	return flow.Verdict{Take: p}, nil
}

func TestMergeFiles(t *testing.T) {
	judge := &flow.Agent{Name: "judge", Prompt: "You decide."}
	for _, c := range []struct {
		name, onConflict string
		opened           bool
		judge            *flow.Agent
		want             string
	}{
		{"ours", flow.TakeOurs, true, nil, "a.txt: ONE two three four FIVE\nb.txt: y\nseen.txt: seen\nx.txt: x\nz.txt: z\n"},
		{"theirs", flow.TakeTheirs, false, nil, "a.txt: uno two three four FIVE\nb.txt: y\nx.txt: x\nz.txt: z\n"},
		{"order", flow.TakeInOrder, true, nil, "a.txt: uno two three four FIVE\nb.txt: y\nseen.txt: seen\nx.txt: x\nz.txt: z\n"},
		{"both", "", false, nil, "a.txt: ONE two three four five\na.txt.y: uno two three four FIVE\nb.txt: y\nx.txt: x\nz.txt: z\n"},
		{"judge", flow.TakeOurs, true, judge, "a.txt: uno two three four FIVE\nb.txt: y\nseen.txt: seen\nx.txt: x\nz.txt: z\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := flowtest.Run(t, together(c.opened, c.onConflict, c.judge), session.New(session.UserText("go")), "testdata/judge.txtar", nil)
			var out struct{ Stdout string }
			last := ""
			for _, c := range s.Chunks() {
				last = c.Text()
			}
			must.Do(t, json.Unmarshal([]byte(last), &out))
			if out.Stdout != c.want {
				t.Errorf("the files are\n%s, want\n%s", out.Stdout, c.want)
			}
		})
	}
}

// TestMergeFilesSurvivesCrashes: wherever a node dies, the merge has the same files, and
// the judge is asked once.
func TestMergeFilesSurvivesCrashes(t *testing.T) {
	t.Parallel()
	judge := &flow.Agent{Name: "judge", Prompt: "You decide."}
	flowtest.CrashEverywhere(t, func() flow.Workflow { return together(true, flow.TakeOurs, judge) },
		session.New(session.UserText("go")), "testdata/judge.txtar", nil)
}

func TestMergeFilesUnknownRule(t *testing.T) {
	said := failure(t, func(t testing.TB) {
		flowtest.Run(t, together(false, "best", nil), session.New(session.UserText("go")), "testdata/judge.txtar", nil)
	})
	if want := `with "best" on conflict: want ours, theirs, order or both`; !strings.Contains(said, want) {
		t.Errorf("%s does not say %s", said, want)
	}
}

// TestMergeFilesManyConflicts: a judge is asked about 16 conflicts at a time, and the
// rule resolves those that it leaves open.
func TestMergeFilesManyConflicts(t *testing.T) {
	shell, _ := tool.ByName("run_shell_command")
	branch := func(name string) flow.Branch {
		return flow.Branch{Name: name, Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			s, _, err := flow.CallTool(ctx, s, shell, map[string]string{"cmd": "for i in $(seq 100 119); do echo " + name + "$i > n$i; done"})
			return s, err
		})}
	}
	s := flowtest.Run(t, flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		j, err := flow.FanOut(ctx, s, []flow.Branch{branch("x"), branch("y")}, nil)
		if err != nil {
			return s, err
		}
		judge := &flow.Agent{Name: "judge", Prompt: "You decide the first."}
		if s, err = flow.Merge(ctx, j, flow.WithFiles(flow.SinceAncestor(), flow.TakeOurs, judge)); err != nil {
			return s, err
		}
		s, _, err = flow.CallTool(ctx, s, shell, map[string]string{"cmd": "grep -h y n*"})
		return s, err
	}), session.New(session.UserText("go")), "testdata/judge.txtar", nil)
	var out struct{ Stdout string }
	last := ""
	for _, c := range s.Chunks() {
		last = c.Text()
	}
	must.Do(t, json.Unmarshal([]byte(last), &out))
	if out.Stdout != "y100\ny116\n" {
		t.Errorf("the judge decided %q", out.Stdout)
	}
}
