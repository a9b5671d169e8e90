package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
	"github.com/rathcluster/rath/workspace"
)

// writing is a tool that writes files into the directory of its sandbox, as a command
// would, and returns a body.
func writing(body any) tool.Tool {
	return tool.Func("touch", "Writes files.", func(ctx context.Context, in struct {
		Paths []string `json:"paths"`
	},
	) (any, error) {
		c, _ := tool.Current(ctx)
		box, err := c.Sandbox(ctx)
		for _, p := range in.Paths {
			if err == nil {
				_, err = box.Exec(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", `mkdir -p "$1"; echo x > "$1/$2"`, "sh", filepath.Dir(p), filepath.Base(p)}})
			}
		}
		return body, err
	}, &tool.FuncOptions{Effect: tool.Sandboxed})
}

// TestProtectedPathsArePutBack: changes of a call to protected paths are reverted after
// it, the model and the record have the list of them, and changes that the task allows
// stay.
func TestProtectedPathsArePutBack(t *testing.T) {
	const note = `"note":"these paths are protected and this run does not allow them, so they are again what they were before the call; ` +
		`go on without them, or say that a person has to allow them by name",`
	many := []string{"main.go"}
	for i := range 9 {
		many = append(many, fmt.Sprintf("modules/m%d/.github/workflows/ci.yml", i))
	}
	for _, tt := range []struct {
		name  string
		allow string
		paths []string
		body  any
		want  string // the body's start, up to the note
		says  string // the warning in the log
		gone  []string
	}{
		{name: "nothing protected", paths: []string{"main.go"}, body: "done", want: `"done"`, says: ""},
		{
			name: "one, and a body that is no object", paths: []string{"main.go", "CLAUDE.md"}, body: "done",
			want: `{"result":"done","put_back":{` + note + `"paths":[{"is":"instructions for an agent","path":"CLAUDE.md"}]}}`,
			says: "put back CLAUDE.md: no --allow names it", gone: []string{"CLAUDE.md"},
		},
		{
			name: "an object", paths: []string{".github/workflows/x.yml"}, body: map[string]int{"n": 1},
			want: `{"n":1,"put_back":{` + note + `"paths":[{"is":"configuration of CI","path":".github/workflows/x.yml"}]}}`,
			says: "put back .github/workflows/x.yml: no --allow names it", gone: []string{".github/workflows/x.yml"},
		},
		{
			name: "an empty object", paths: []string{".envrc"}, body: struct{}{},
			want: `{"put_back":{` + note + `"paths":[{"is":"configuration of a shell","path":".envrc"}]}}`,
			says: "put back .envrc: no --allow names it", gone: []string{".envrc"},
		},
		{
			name: "many", paths: many, body: struct{}{}, want: `{"put_back":{"more":4,` + note + `"paths":[{"is":"configuration of CI","path":"modules/m0/.github/workflows/ci.yml"},`,
			says: "put back modules/m0/.github/workflows/ci.yml, modules/m1/.github/workflows/ci.yml and 7 more: no --allow names it", gone: many[1:],
		},
		{name: "allowed", allow: ".github/workflows,CLAUDE.md", paths: []string{".github/workflows/x.yml", "CLAUDE.md"}, body: "done", want: `"done"`, says: ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var w world
			store := blob.NewMemory()
			rt := w.placedRuntime(t, rooms(false), store)
			var body json.RawMessage
			code := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				s, r, err := flow.CallTool(ctx, s.To("local", ""), writing(tt.body), map[string][]string{"paths": tt.paths})
				body = json.RawMessage(r.Body.(tool.JSON))
				return s, err
			})
			task := journal.Task{ID: "one", Workflow: "w", Session: home, Sandbox: journal.Sandbox{Allow: tt.allow}}
			ex := must(rt.Runtime.Begin(t.Context(), flow.Registration{Name: "w", New: func() flow.Workflow { return code }}, task))
			check(t, forward(t, t.Context(), ex, run.Succeeded))
			if !strings.HasPrefix(string(body), tt.want) || !json.Valid(body) || len(body) > 2<<10 {
				t.Errorf("the model reads\n%s\nwant\n%s", body, tt.want)
			}
			var said strings.Builder
			for _, f := range facts[journal.Warning](t, &w, journal.KindWarning) {
				said.WriteString(f.Text)
			}
			if said.String() != tt.says {
				t.Errorf("the log warns %q, want %q", said.String(), tt.says)
			}
			head := ex.Result().Placement().Head
			for _, p := range tt.paths {
				_, err := workspace.Read(t.Context(), store, head, p)
				gone := false
				for _, g := range tt.gone {
					gone = gone || g == p
				}
				if errors.Is(err, fs.ErrNotExist) != gone || !gone && err != nil {
					t.Errorf("%s: %v, gone is %v", p, err, gone)
				}
			}
		})
	}
}
