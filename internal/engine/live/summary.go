package live

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/tool"
)

// RequestSummary summarises the hosts that a call's commands requested, with counts, for
// the readers of a run.
func RequestSummary(list []journal.NetworkRequest, more int) string {
	if len(list) == 0 {
		return ""
	}
	asked, refused := map[string]int{}, map[string]int{}
	for _, r := range list {
		if r.Refused != "" {
			refused[r.Host]++
		} else {
			asked[r.Host]++
		}
	}
	text := hosts(", asks ", asked) + hosts(", is refused ", refused)
	if more > 0 {
		text += fmt.Sprintf(", %d requests more", more)
	}
	return text
}

// ServiceSummary summarises the last output of services beside a call, for the readers of
// a run.
func ServiceSummary(logs []journal.ServiceLog) (text string) {
	for _, l := range logs {
		lines := strings.Split(strings.TrimSpace(l.Log), "\n")
		text += fmt.Sprintf(", %s says %q", l.Name, excerpt.Clip(lines[len(lines)-1], 60))
	}
	return text
}

// hosts lists the first few of some hosts in order.
func hosts(verb string, times map[string]int) string {
	const few = 3
	var names []string
	for _, h := range slices.Sorted(maps.Keys(times)) {
		if len(names) == few {
			names = append(names, fmt.Sprintf("%d more", len(times)-few))
			break
		}
		name := excerpt.Clip(h, 60)
		if n := times[h]; n > 1 {
			name += fmt.Sprintf(" (%d)", n)
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return ""
	}
	return verb + strings.Join(names, ", ")
}

// CallSummary summarises a tool call in one line, for the readers of a run.
func CallSummary(name, args string, out tool.Outcome) string {
	var a struct {
		Cmd, Path, Pattern, Code, Language string
	}
	_ = json.Unmarshal([]byte(args), &a) // arguments of other tools have other fields
	text := name
	switch {
	case a.Cmd != "":
		text = excerpt.FirstLine(a.Cmd)
	case a.Pattern != "":
		did := map[string]string{tool.Grep: "searches for", tool.Glob: "searches for files"}[name]
		text = fmt.Sprintf("%s %q", cmp.Or(did, name), excerpt.Clip(a.Pattern, 60))
		if a.Path != "" {
			text += " in " + path.Clean(a.Path)
		}
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
	end := ""
	switch {
	case out.IsError && out.Kind != "":
		end = ": " + string(out.Kind)
	case b.Exit != nil:
		end = fmt.Sprintf(", exit %d", *b.Exit)
	}
	if limit := 100 - len(end); len(text) > limit { // how it ended counts more
		text = excerpt.Clip(text, limit-len("…")) + "…"
	}
	return text + end
}
