package view

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestUses checks that a later call used a file if it changed the file, has it as an
// argument, or names it in its command as a whole path. For other commands the use is
// unknown.
func TestUses(t *testing.T) {
	made := messages.Record{Run: "r1", Step: "2.0", Kind: messages.KindTool, Tool: tool.WriteWorkspaceFile}
	o := &Impact{Run: "r1", Step: "2.0"}
	o.changes = []FileChange{{Path: "src/a.go", By: &made}}
	o.Changed = filesOf(o.changes, func(*FileChange) bool { return true })
	i := lineage.Impact{Record: made}
	calls := Calls{}
	n := 3
	call := func(name string, args any) *messages.Record {
		data := must.Get(json.Marshal(args))(t)
		step := run.Path(fmt.Sprint(n))
		n++
		calls.Add("r1", step, []session.ToolCall{{Name: "other", Args: "{}"}, {Name: name, Args: string(data)}})
		i.Steps = append(i.Steps, messages.Record{Run: "r1", Step: step.Index(1), Kind: messages.KindTool, Tool: name})
		return &i.Steps[len(i.Steps)-1]
	}
	call(tool.ReadWorkspaceFile, map[string]any{"path": "src/a.go"})                     // 3.1
	call(tool.ReadWorkspaceFile, map[string]any{"path": "src/b.go"})                     // 4.1
	call(tool.RunShellCommand, map[string]any{"cmd": "go vet ./src/a.go && rm x"})       // 5.1
	call(tool.RunShellCommand, map[string]any{"cmd": "go test ./..."})                   // 6.1
	call("review", map[string]any{"files": []any{"b", map[string]any{"p": "src/a.go"}}}) // 7.1
	again := call(tool.WriteWorkspaceFile, map[string]any{"path": "src/a.go"})           // 8.1
	call(tool.ListWorkspaceFiles, map[string]any{"path": "src"})                         // 9.1
	o.changes = append(o.changes, FileChange{Path: "src/a.go", By: &messages.Record{Run: again.Run, Step: again.Step}})
	i.Steps = append(i.Steps, messages.Record{Run: "r1", Step: "10", Kind: messages.KindModel}, messages.Record{Run: "r2", Step: "3.1", Kind: messages.KindTool, Tool: tool.ReadWorkspaceFile})
	o.Use(i, calls)
	var got []string
	for _, u := range o.Uses {
		got = append(got, fmt.Sprintf("%s %s %s", u.How, u.Path, u.Step))
	}
	for _, c := range o.Commands {
		got = append(got, "may "+string(c.Step))
	}
	want := "read src/a.go 3.1, named src/a.go 5.1, read src/a.go 7.1, changed src/a.go 8.1, may 6.1"
	if all := strings.Join(got, ", "); all != want {
		t.Errorf("%s\nwant %s", all, want)
	}
}

func TestNames(t *testing.T) {
	for text, want := range map[string]bool{
		"cat a.go": true, "cat ./a.go": true, "cat 'a.go'": true, "a.go": true, "cat a.go.": true, "x=a.go;y": true, "cat a.gox a.go": true,
		"": false, "cat b/a.go": false, "cat a.gox": false, "cat xa.go": false, "cat a.go.orig": false, "cat a.go/b": false, "cat ../a.go": false,
	} {
		if got := names(text, "a.go"); got != want {
			t.Errorf("%q names a.go: %t", text, got)
		}
	}
}
