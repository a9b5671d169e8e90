package flowtest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/sandbox/scripted"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

func editor() flow.Workflow {
	return &flow.Agent{Name: "editor", Tools: tool.Builtins()}
}

// TestEdits: the tools that find and edit come to the same files in a sandbox that confines
// commands and in one that has none of the host.
func TestEdits(t *testing.T) {
	for name, o := range map[string]*flowtest.Options{"local": nil, "scripted": {Sandbox: scripted.New(nil)}} {
		t.Run(name, func(t *testing.T) {
			s := flowtest.Run(t, editor(), session.New(session.UserText("go")), "testdata/edits.txtar", o)
			var got []string
			for _, c := range s.Chunks() {
				if c.Kind() == session.ToolResult {
					text, _, _ := strings.Cut(c.Text(), `,"elapsed_ms"`)
					got = append(got, c.Name()+" "+text)
				}
			}
			want := []string{
				`glob {"files":["a.txt","b.txt"]}`, `grep {"text":"a.txt:2:two\n","matches":1,"files":1}`, `todo {"done":0,"open":1}`,
				`edit {"replaced":1,"lines":[2]}`, `edit {"replaced":1,"lines":[1]}`,
				`edit {"ok":false,"error_kind":"mismatch","message":"old_string is not in \"a.txt\": read the part of the file again and copy the text as it is, without numbers of lines","detail":"a.txt"}`,
				`apply_patch {"files":[{"path":"a.txt","change":"updated","added":1,"removed":1},{"path":"b.txt","change":"moved","to":"sub/c.txt","added":0,"removed":0},{"path":"d.txt","change":"added","added":1,"removed":0}]}`,
				`run_shell_command {"exit_code":0,"stdout":"one\n2\n\nb\n\nd\necho echo\n","stderr":""`,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestEditsHappenOnce: wherever a node dies, a call that was cut off is made again on the
// files as they were before it, so that an edit is never made twice.
func TestEditsHappenOnce(t *testing.T) {
	flowtest.CrashEverywhere(t, editor, session.New(session.UserText("go")), "testdata/edits.txtar", nil)
}
