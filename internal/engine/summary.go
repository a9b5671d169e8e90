package engine

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/rathcluster/rath/internal/excerpt"
	"github.com/rathcluster/rath/tool"
)

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "ch") {
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// summary says in one line what a tool call did, for people who follow a run.
func summary(name, args string, out tool.Outcome) string {
	var a struct {
		Cmd, Path, Code, Language string
	}
	_ = json.Unmarshal([]byte(args), &a) // arguments of other tools have other fields
	text := name
	switch {
	case a.Cmd != "":
		text = excerpt.FirstLine(a.Cmd)
	case a.Path != "" && strings.HasPrefix(name, "write"):
		text = "writes " + path.Clean(a.Path)
	case a.Path != "" && strings.HasPrefix(name, "read"):
		text = "reads " + path.Clean(a.Path)
	case a.Path != "":
		text = name + " " + path.Clean(a.Path)
	}
	var b struct {
		Exit *int `json:"exit_code"`
	}
	_ = json.Unmarshal(out.Body, &b)
	switch {
	case out.IsError && out.Kind != "":
		text += ": " + string(out.Kind)
	case b.Exit != nil:
		text += fmt.Sprintf(", exit %d", *b.Exit)
	}
	return excerpt.Clip(text, 100)
}
