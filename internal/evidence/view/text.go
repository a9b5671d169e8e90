package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Age formats the time since a moment.
func Age(now, then time.Time) string {
	if then.IsZero() || then.UnixMilli() == 0 {
		return "-"
	}
	switch d := now.Sub(then); {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

// Left formats the time until a moment in Unix milliseconds, where zero means never.
func Left(now time.Time, at int64) string {
	if at == 0 {
		return "-"
	}
	// In the format of an age of the same length.
	return Age(now, now.Add(-max(time.UnixMilli(at).Sub(now), 0)))
}

// Moment formats a date and a time in the local zone.
func Moment(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") }

// Clock formats a time of day in the local zone.
func Clock(t time.Time) string { return t.Local().Format(time.TimeOnly) }

// Took formats a duration for display.
func Took(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d.%d s", d/time.Second, d%time.Second/(100*time.Millisecond))
	default:
		return d.Round(time.Second).String()
	}
}

// Counted returns "1 step", "2 steps".
func Counted(n int64, noun string) string { return excerpt.Counted(n, noun) }

// Names joins names with commas.
func Names(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// EndText describes the end of a run: its state and, if the last answer of a model did not
// end normally, the code, the answer's finish and the server's own word for it.
func EndText(r *messages.Result) string {
	text := strings.ReplaceAll(string(r.State), "_", " ")
	var how []string
	if r.Finish != "" && r.Finish != string(llm.FinishStop) && r.Finish != string(llm.FinishTools) {
		if r.Code != "" && r.State == run.Failed {
			how = append(how, string(r.Code))
		}
		how = append(how, "finish "+r.Finish)
	}
	if r.Word != "" {
		how = append(how, fmt.Sprintf("the server's word %q", term.Line(r.Word, 64)))
	}
	if how != nil {
		text += " (" + strings.Join(how, ", ") + ")"
	}
	return text
}

// UsageText describes a usage: "2 model calls, 1,204 tokens, 83% of input cached".
func UsageText(u session.Usage) string {
	text := Counted(u.Calls, "model call") + ", " + Counted(u.Tokens(), "token")
	if rate := lineage.HitRate(u); rate != "" {
		text += ", " + rate + " of input cached"
	}
	return text
}

// BudgetText describes the limits of a budget.
func BudgetText(b messages.Budget) string {
	var parts []string
	if b.Tokens > 0 {
		parts = append(parts, Counted(b.Tokens, "token"))
	}
	if b.Steps > 0 {
		parts = append(parts, Counted(b.Steps, "step"))
	}
	if b.MicroUSD > 0 {
		parts = append(parts, fmt.Sprintf("%d.%06d USD", b.MicroUSD/1_000_000, b.MicroUSD%1_000_000))
	}
	if b.TimeMS > 0 {
		parts = append(parts, (time.Duration(b.TimeMS) * time.Millisecond).String())
	}
	if len(parts) == 0 {
		return "without limit"
	}
	return strings.Join(parts, ", ")
}
