package view

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Details reads details from a store that are not in lineage records. A missing detail is
// "", because a timeline does not depend on it.
type Details struct {
	Values *journal.Values
	Blobs  func(session.Tenant) blob.Store
}

// changed describes the changes of files: "edits slug.sh" and "+1 -1".
func (l *Details) changed(ctx context.Context, t session.Tenant, before, after string) (text, right string) {
	a, errA := blob.ParseDigest(before)
	z, errZ := blob.ParseDigest(after)
	if errA != nil || errZ != nil {
		return "", ""
	}
	patch, err := manifest.Patch(ctx, l.Blobs(t), a, z)
	if err != nil {
		return "", ""
	}
	return summary(patch)
}

// summary summarizes a patch: "edits slug.sh" and "+3 -1".
func summary(patch []manifest.FileDiff) (text, right string) {
	names := map[manifest.ChangeKind][]string{}
	added, removed, files := 0, 0, 0
	for i := range patch {
		d := &patch[i]
		if d.Before.Kind == manifest.Dir || d.After.Kind == manifest.Dir {
			continue
		}
		files++
		names[d.Kind] = append(names[d.Kind], d.Path)
		a, r := d.Changed()
		added, removed = added+a, removed+r
	}
	if files == 0 {
		return "", ""
	}
	var parts []string
	for _, k := range []struct {
		kind manifest.ChangeKind
		verb string
	}{{manifest.Modified, "edits"}, {manifest.Added, "adds"}, {manifest.Removed, "removes"}} {
		list := names[k.kind]
		if len(list) == 0 {
			continue
		}
		more := ""
		if len(list) > 2 {
			list, more = list[:1], fmt.Sprintf(" and %d more", len(list)-1)
		}
		parts = append(parts, k.verb+" "+strings.Join(list, " and ")+more)
	}
	return strings.Join(parts, ", "), fmt.Sprintf("+%d -%d", added, removed)
}

// printed returns the last line and the exit code of a command.
func (l *Details) printed(ctx context.Context, at session.Ref, step run.Path) string {
	s, err := l.Values.At(ctx, at)
	if err != nil {
		return ""
	}
	for _, c := range s.LastN(8) {
		if c.Kind() == session.ToolResult && c.Origin().Step == string(step) {
			return Ending(c.Text())
		}
	}
	return ""
}

// Ending returns the last line that a command printed and its exit code; "" for a body
// that is not the result of a command.
func Ending(body string) string {
	var b struct {
		Exit     *int   `json:"exit_code"`
		Stdout   string `json:"stdout"`
		Stderr   string `json:"stderr"`
		TimedOut bool   `json:"timed_out"`
	}
	if json.Unmarshal([]byte(body), &b) != nil || b.Exit == nil {
		return ""
	}
	text := lastLine(b.Stdout)
	if text == "" && *b.Exit != 0 {
		text = lastLine(b.Stderr)
	}
	if b.TimedOut {
		return strings.TrimPrefix(text+", timed out", ", ")
	}
	return strings.TrimPrefix(fmt.Sprintf("%s, exit %d", text, *b.Exit), ", ")
}

// lastLine returns the last line that is not blank.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return term.Line(lines[len(lines)-1], 60)
}
