package journaltest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// commitText shows a commit. An asterisk marks a commit that a nearly full store still
// accepts.
func commitText(e commitlog.Entry) string {
	c := e.Commit
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%d", c.Key.ID, c.Seq)
	if journal.IsTerminalOnly(c.Events) {
		b.WriteString("*")
	}
	batches := map[string]bool{}
	for _, ev := range c.Events {
		if ev.Batch != "" && !batches[ev.Batch] {
			batches[ev.Batch] = true
			b.WriteString(" batch=" + ev.Batch)
		}
	}
	b.WriteString("\n")
	for _, ev := range c.Events {
		fmt.Fprintf(&b, "  %s%s\n", ev.Kind, eventText(c.Key, ev))
	}
	return b.String()
}

// hidden are the fields without meaning to a reader: digests, and those that repeat the
// log's name.
var hidden = []string{"digest", "hash", "tenant", "token"}

// points are the fields that hold a point in time.
var points = []string{"due", "expires", "deadline", "not_before"}

func eventText(k session.Key, e session.Event) string {
	if e.Kind == session.KindChunk {
		if c, err := session.DecodeChunk(e); err == nil {
			return fmt.Sprintf(" %s %q", c.Kind(), c.Text())
		}
	}
	d := json.NewDecoder(strings.NewReader(e.Data))
	d.UseNumber()
	var fields map[string]any
	if err := d.Decode(&fields); err != nil {
		return " " + e.Data
	}
	if h, ok := fields["home"].(map[string]any); ok && h["session"] == string(k.ID) {
		delete(fields, "home")
	}
	return fieldsText(e.Time, fields)
}

func fieldsText(now time.Time, fields map[string]any) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if slices.Contains(hidden, name) || fields[name] == "" {
			continue
		}
		b.WriteString(" " + name)
		if text := valueText(now, name, fields[name]); text != "true" {
			b.WriteString("=" + text)
		}
	}
	return b.String()
}

func valueText(now time.Time, name string, value any) string {
	switch v := value.(type) {
	case string:
		return quoted(v)
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		n, err := v.Int64()
		switch {
		case err != nil || n == 0:
		case slices.Contains(points, name):
			return time.UnixMilli(n).Sub(now).Round(time.Second).String()
		case name == "time": // of a budget
			return time.Duration(n).String()
		}
		return v.String()
	case []any:
		var all []string
		for _, one := range v {
			all = append(all, valueText(now, "", one))
		}
		return "[" + strings.Join(all, " ") + "]"
	case map[string]any:
		if id, ok := v["session"].(string); ok && v["tenant"] != nil { // a key or a link
			if at, ok := v["version"].(json.Number); ok {
				return id + "@" + at.String()
			}
			return id
		}
		return "{" + strings.TrimSpace(fieldsText(now, v)) + "}"
	}
	return fmt.Sprint(value)
}

// quoted quotes a text that is not one word.
func quoted(s string) string {
	if s == "" || strings.ContainsAny(s, " \n\"={}[]") {
		return strconv.Quote(s)
	}
	return s
}

// workText shows a follow-up of a commit.
func workText(w journal.Work) string {
	if t := w.Task; t != nil {
		what := "dispatch"
		if !t.Resume {
			what = "begin"
		}
		text := fmt.Sprintf("%s %s workflow=%s", what, t.ID, t.Workflow)
		if t.Revision != "" {
			text += " revision=" + t.Revision
		}
		if t.Branch != nil {
			text += " branch=" + string(t.Branch.Path)
			if t.Branch.WarmsCache {
				text += " warm"
			}
		}
		return text
	}
	s := w.Signal
	text := "tell " + string(s.To.ID)
	switch {
	case s.Cancel != nil:
		text += fmt.Sprintf(" cancel %s reason=%q", s.Run, s.Cancel.Reason)
	case s.Settle != nil:
		text += fmt.Sprintf(" settle %s tokens=%d steps=%d", s.Run, s.Settle.Spent.Usage.Tokens(), s.Settle.Spent.Steps)
	case s.Close != nil:
		text += fmt.Sprintf(" closed as %s reason=%q", s.Close.State, s.Close.Reason)
	case s.Awaited != nil:
		text += fmt.Sprintf(" %s is awaited by %s", s.Run, s.Awaited.By)
	case s.Received != nil && s.Received.Ended != nil:
		text += fmt.Sprintf(" %s that %s is %s", s.Run, s.Received.Ended.Run, s.Received.Ended.State)
	case s.Received != nil && s.Received.Branch != nil:
		text += fmt.Sprintf(" %s of %s is %s", s.Received.Path, s.Received.Branch.Link.ID, s.Received.Branch.State)
	case s.Received != nil:
		text += fmt.Sprintf(" %s %s", s.Received.Path, s.Received.Kind)
	}
	return text
}

// claimText shows the answer to a claim.
func claimText(g *journal.ClaimResult) string {
	r := g.Record
	switch {
	case g.State == run.Running:
		text := fmt.Sprintf("running attempt=%d epoch=%d says %s", g.Attempt, g.Epoch, says(g.Session))
		if base := says(g.Base); base != says(g.Session) {
			text += " base " + base
		}
		if n := g.Journal.Len(); n > 0 {
			text += fmt.Sprintf(" steps=%d", n)
		}
		return text + "\n"
	case r.Ended != nil:
		return endText(r.Ended)
	case r.Review != nil:
		return fmt.Sprintf("%s because of %s: %s\n", g.State, r.Review.Code, r.Review.Reason)
	}
	return string(g.State) + "\n"
}

func endText(e *journal.Ended) string {
	text := string(e.State)
	if e.Code != "" {
		text += fmt.Sprintf(" %s: %s", e.Code, e.Error)
	}
	return text + "\n"
}

// recordText shows a run's record in a log.
func recordText(r *journal.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s attempt=%d", r.State, r.Attempt)
	for _, v := range r.Inbox() {
		b.WriteString(" inbox=" + v.Kind)
	}
	e := r.Reservations()
	if set := e.Total(); !set.IsZero() {
		fmt.Fprintf(&b, " reserved.tokens=%d reserved.steps=%d", set.Tokens, set.Steps)
	}
	if e.LateSteps > 0 {
		fmt.Fprintf(&b, " late.tokens=%d late.steps=%d", e.Late.Tokens(), e.LateSteps)
	}
	return b.String() + "\n"
}

// says shows the texts of a session.
func says(v session.Session) string {
	var all []string
	for _, c := range v.Chunks() {
		all = append(all, quoted(c.Text()))
	}
	if n := len(all); n > 12 {
		all = slices.Concat(all[:4], []string{fmt.Sprintf("…%d more…", n-5)}, all[n-1:])
	}
	return "[" + strings.Join(all, " ") + "]"
}
