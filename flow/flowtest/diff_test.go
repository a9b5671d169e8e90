package flowtest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// written returns s with a file written.
func written(ctx context.Context, s session.Session, name, content string) (session.Session, error) {
	write, _ := tool.ByName("write_workspace_file")
	s, _, err := flow.CallTool(ctx, s, write, map[string]string{"path": name, "content": content})
	return s, err
}

// differs edits files on the run's session, on a fork and in a branch, and returns the
// diff of each.
func differs(ctx context.Context, s session.Session) (session.Session, error) {
	tell := func(ctx context.Context, s session.Session, name string) (session.Session, error) {
		text, err := flow.Diff(ctx, s)
		if err != nil {
			return s, err
		}
		if _, err := flow.ChangeVersion(ctx, "tell-"+name, 0, 1); err != nil {
			return s, err
		}
		return s.With(session.UserText(name + ":\n" + text)), nil
	}
	s, err := tell(ctx, s, "untouched")
	if err != nil {
		return s, err
	}
	if s, err = written(ctx, s, "a.txt", "one\n2\n"); err != nil {
		return s, err
	}
	if s, err = tell(ctx, s, "trunk"); err != nil {
		return s, err
	}
	try, err := flow.Fork(ctx, s)
	if err != nil {
		return s, err
	}
	if try, err = written(ctx, try, "b.txt", "new\n"); err != nil {
		return s, err
	}
	if try, err = tell(ctx, try, "fork"); err != nil {
		return s, err
	}
	if s, err = flow.Adopt(ctx, s, try, "good"); err != nil {
		return s, err
	}
	j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "x", Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := written(ctx, s, "b.txt", "newer\n")
		if err != nil {
			return s, err
		}
		return tell(ctx, s, "branch")
	})}}, nil)
	if err != nil {
		return s, err
	}
	if s, err = flow.Merge(ctx, j, flow.Pick(0)); err != nil {
		return s, err
	}
	return tell(ctx, s, "all")
}

func TestDiff(t *testing.T) {
	s := flowtest.Run(t, flow.Func(differs), session.New(session.UserText("go")), "testdata/files.txtar", nil)
	var said []string
	for _, c := range s.Chunks() {
		if name, text, ok := strings.Cut(c.Text(), ":\n"); ok && c.Kind() == session.User {
			var lines []string
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-") {
					lines = append(lines, strings.TrimSpace(line))
				}
			}
			said = append(said, fmt.Sprint(name, " ", lines))
		}
	}
	want := []string{
		"untouched []",
		"trunk [--- a/a.txt +++ b/a.txt -two +2]",
		"fork [--- /dev/null +++ b/b.txt +new]",
		"branch [--- a/b.txt +++ b/b.txt -new +newer]",
		"all [--- a/a.txt +++ b/a.txt -two +2 --- /dev/null +++ b/b.txt +newer]",
	}
	if !slices.Equal(said, want) {
		t.Errorf("it says\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
}

func TestDiffCrashEverywhere(t *testing.T) {
	t.Parallel()
	flowtest.CrashEverywhere(t, func() flow.Workflow { return flow.Func(differs) }, session.New(session.UserText("go")), "testdata/files.txtar", nil)
}

// TestLongDiff: the text is cut at a line and names the command for the rest, and a
// session without files has none.
func TestLongDiff(t *testing.T) {
	flowtest.Run(t, flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := written(ctx, s, "long.txt", strings.Repeat("a line of some length, é\n", 10_000))
		if err != nil {
			return s, err
		}
		text, err := flow.Diff(ctx, s)
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		last := lines[len(lines)-1]
		if len(text) > 16<<10 || len(text) < 16<<10-100 || lines[len(lines)-2] != "+a line of some length, é" ||
			!strings.HasPrefix(last, "… 2") || !strings.HasSuffix(last, s.Placement().Head.String()) {
			t.Errorf("%d bytes, %v, at the end:\n%s", len(text), err, strings.Join(lines[len(lines)-2:], "\n"))
		}
		return s, err
	}), session.New(session.UserText("go")), "testdata/files.txtar", nil)
	flowtest.Run(t, flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		if text, err := flow.Diff(ctx, s); text != "" || err != nil {
			t.Errorf("without files: %q, %v", text, err)
		}
		return s, nil
	}), session.New(session.UserText("go")), "testdata/word.txtar", nil)
}
