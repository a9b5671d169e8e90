package pages

import (
	"cmp"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// functions are the functions of the templates.
var functions = template.FuncMap{
	"icon": icon, "markdown": markdown,
	"shown":     func(v any) template.HTML { return shown(fmt.Sprint(v)) },
	"plain":     func(v any) string { return plain(fmt.Sprint(v)) },
	"clip":      func(limit int, v any) template.HTML { return clipped(fmt.Sprint(v), limit) },
	"state":     func(name, word string) stateView { return stateView{name, word} },
	"cleans":    func(id run.ID) run.ID { of, _ := run.CleanedBy(id); return of },
	"ago":       ago,
	"at":        func(t time.Time) template.HTML { return moment(t, t.UTC().Format("2 Jan 15:04:05")) },
	"until":     func(now time.Time, ms int64) template.HTML { return moment(time.UnixMilli(ms), view.Left(now, ms)) },
	"thousands": excerpt.Thousands,
	"counted":   func(n int, noun string) string { return excerpt.Counted(n, noun) },
	"bytes":     byteSize[uint64],
	"fill":      Fill,
	"percent":   func(s messages.StreamFill) float64 { return 100 * Fill(s) },
	"usd":       usd,
	"diffed":    diffed,
	"ms":        time.UnixMilli,
	"deref":     func(r *view.Reason) view.Reason { return *r },
	"linesof": func(d manifest.FileDiff) *lines {
		added, removed := d.Changed()
		return &lines{added, removed}
	},
	"bar":  func(part float64) int { return max(min(int(part*64), 64), 0) },
	"join": strings.Join,
	"list": func(a ...any) []any { return a },
}

// ago is the time since a moment, with the moment on hover.
func ago(now, t time.Time) template.HTML { return moment(t, view.Age(now, t)) }

func moment(t time.Time, text string) template.HTML {
	if t.IsZero() || t.UnixMilli() == 0 {
		return ""
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, //nolint:gosec // times alone
		t.UTC().Format(time.RFC3339Nano), t.UTC().Format("2006-01-02 15:04:05 UTC"), template.HTMLEscapeString(text)))
}

// byteSize formats a number of bytes.
func byteSize[N int64 | uint64](n N) string {
	for _, unit := range []string{"bytes", "kB", "MB", "GB"} {
		if n < 10_000 || unit == "GB" {
			return fmt.Sprintf("%d %s", n, unit)
		}
		n /= 1000
	}
	return ""
}

// diffed is shown for a text that may be a difference, with its lines coloured.
func diffed(text string) template.HTML {
	var b strings.Builder
	for line := range strings.Lines(text) {
		class := ""
		switch {
		case strings.HasPrefix(line, "+") && !strings.HasPrefix(line, "+++"):
			class = "a"
		case strings.HasPrefix(line, "-") && !strings.HasPrefix(line, "---"):
			class = "d"
		}
		if class == "" {
			b.WriteString(string(shown(line)))
			continue
		}
		b.WriteString(`<span class="` + class + `">` + string(shown(strings.TrimSuffix(line, "\n"))) + "</span>")
	}
	return template.HTML(b.String()) //nolint:gosec // each line was escaped
}

// usd formats the cost of a usage: a cost of nothing and a missing price differ.
func usd(u session.Usage) string {
	switch {
	case u.MicroUSD >= 100_000:
		return fmt.Sprintf("$%.2f", float64(u.MicroUSD)/1e6)
	case u.MicroUSD > 0:
		return fmt.Sprintf("$%.4f", float64(u.MicroUSD)/1e6)
	case u.Tokens() > 0:
		return "no price"
	}
	return "$0"
}

// took formats milliseconds, "" for none.
func took(ms int64) string {
	if ms <= 0 {
		return ""
	}
	return view.Took(time.Duration(ms) * time.Millisecond)
}

// stateView is a state as a word with its colour, which is also the name of its icon.
type stateView struct{ Class, Word string }

// stateOf returns the state of a run; live may be nil.
func stateOf(r *messages.RunInfo, live *messages.Live) stateView {
	switch {
	case r.State == run.NeedsReview:
		return stateView{"review", "needs review"}
	case r.State == run.Succeeded:
		return stateView{"ok", "done"}
	case r.State == run.Failed:
		return stateView{"fail", "failed"}
	case r.State == run.TimedOut:
		return stateView{"fail", "timed out"}
	case r.State == run.Cancelled:
		return stateView{"lost", "stopped"}
	case r.Quarantine != "":
		return stateView{"stuck", "quarantined"}
	case len(asksOf(r)) > 0:
		return stateView{"ask", "asks"}
	case live != nil && view.Retries(live):
		return stateView{"retry", "retrying"}
	case live != nil && view.Stuck(live) != "":
		return stateView{"stuck", "stuck"}
	case r.State == run.Running && r.Attempt > 1 && r.BranchOf == nil:
		return stateView{"run", "resumed"}
	case r.State == run.Running:
		return stateView{"run", "running"}
	case r.State == run.Waiting:
		return stateView{"queued", "waiting"}
	}
	return stateView{"queued", cmp.Or(string(r.State), "queued")}
}

// asksOf returns the waits of a run that a person ends, and its review.
func asksOf(r *messages.RunInfo) (out []messages.Wait) {
	for _, w := range r.Waits {
		if r.State == run.Waiting && (w.Kind == run.WaitApproval || w.Kind == run.WaitResponse || w.Kind == run.WaitMessage) {
			out = append(out, w)
		}
	}
	if r.State == run.NeedsReview {
		w := messages.Wait{Kind: waitReview, Due: r.Due}
		if r.Review != nil {
			w.Step, w.Name, w.Title = r.Review.Step, r.Review.Tool, r.Review.Reason
		}
		out = append(out, w)
	}
	return out
}

// waitReview is the kind of the question of a run that needs review.
const waitReview = "review"

// shapes are the paths of the icons.
var shapes = map[string]string{
	"run":    `<path d="M8 1.75a6.25 6.25 0 1 1-6.25 6.25"/><circle cx="8" cy="8" r="1.5" fill="currentColor"/>`,
	"ask":    `<circle cx="8" cy="5" r="2.75"/><path d="M2.5 14c.6-3 2.7-4.5 5.5-4.5s4.9 1.5 5.5 4.5"/>`,
	"review": `<path d="M8 2 1.75 13.5h12.5z"/><path d="M8 6.5v3m0 1.9v.1"/>`,
	"retry":  `<path d="M13.5 8a5.5 5.5 0 1 1-1.7-4"/><path d="M12.5 1.5v3h-3"/>`,
	"stuck":  `<path d="M4 2h8M4 14h8M4.5 2c0 3.5 3.5 4 3.5 6s-3.5 2.5-3.5 6M11.5 2c0 3.5-3.5 4-3.5 6s3.5 2.5 3.5 6"/>`,
	"fail":   `<rect x="2" y="2" width="12" height="12" rx="2"/><path d="m5.75 5.75 4.5 4.5m0-4.5-4.5 4.5"/>`,
	"ok":     `<path d="m2.5 8.5 3.5 3.5 7.5-8"/>`,
	"lost":   `<circle cx="8" cy="8" r="6.25"/><path d="M5 8h6"/>`,
	"queued": `<circle cx="8" cy="8" r="6.25"/><path d="M8 4.5V8l2.5 1.5"/>`,
	"file":   `<path d="M4 1.75h5l3.5 3.5v9H4zM6.5 8h3.5M6.5 11h3.5"/>`,
	"edit":   `<path d="M10.5 2.5 13.5 5.5 5.5 13.5l-3.5.5.5-3.5z"/>`,
	"shell":  `<path d="m2.5 4 4 4-4 4M8.5 12.5h5"/>`,
	"says":   `<path d="M2 3.5h12v8H7l-3 2.5v-2.5H2z"/>`,
	"fan":    `<path d="M2 8h4m0 0 4-5h4M6 8h8M6 8l4 5h4"/>`,
	"join":   `<path d="M14 8h-4m0 0L6 3H2m8 5H2m8 0-4 5H2"/>`,
	"tool":   `<path d="M10 2.5a3.5 3.5 0 0 0-3.2 5L2 12.3 3.7 14l4.8-4.8a3.5 3.5 0 0 0 4.6-4.4L11 7 9 5l2.2-2.2z"/>`,
	"note":   `<circle cx="8" cy="8" r="2"/>`,
}

// icon returns an icon in the colour of its class, "" for none.
func icon(name, class string) template.HTML {
	return template.HTML(`<svg class="i ` + class + `" viewBox="0 0 16 16" aria-hidden="true">` + shapes[name] + `</svg>`) //nolint:gosec // both are names of this package
}

// Fill is the used part of a stream.
func Fill(s messages.StreamFill) float64 {
	if s.MaxBytes == 0 {
		return 0
	}
	return float64(s.Bytes) / float64(s.MaxBytes)
}
