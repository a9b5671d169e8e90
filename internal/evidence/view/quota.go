package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
)

// QuotaText lists the used and the allowed amounts of a tenant's quota today; "" without a
// quota.
func QuotaText(q *messages.Quota) string {
	if q.QuotaAmounts == (messages.QuotaAmounts{}) {
		return ""
	}
	var parts []string
	add := func(used, most int64, text func(int64) string, unit string) {
		switch {
		case most == messages.MaxQuota: // the day is open
			parts = append(parts, fmt.Sprintf("%s %s, without a limit today", text(used), unit))
		case most > 0:
			parts = append(parts, fmt.Sprintf("%s of %s %s", text(used), text(most), unit))
		}
	}
	usd := func(n int64) string { return fmt.Sprintf("%.2f", float64(n)/1e6) }
	a := q.On(q.Day)
	add(q.Used.Runs, a.Runs, excerpt.Thousands, "runs")
	add(q.Used.Running, a.Concurrency, excerpt.Thousands, "at one time")
	add(q.Used.Tokens, a.Tokens, excerpt.Thousands, "tokens")
	add(q.Used.MicroUSD, a.MicroUSD, usd, "USD")
	if n := q.Used.Waiting; n > 0 {
		parts = append(parts, excerpt.Counted(int(n), "run")+" waiting")
	}
	if n := q.Used.Blocked; n > 0 {
		parts = append(parts, excerpt.Counted(int(n), "model call")+" waiting")
	}
	return strings.Join(parts, ", ")
}

// WriteQuota prints the quota of a tenant.
func WriteQuota(w *term.Writer, tenant string, q *messages.Quota) {
	text := QuotaText(q)
	if text == "" {
		w.Println("tenant " + tenant + " has no quota")
	} else {
		w.Println(fmt.Sprintf("tenant %s on %s UTC: %s", tenant, q.Day, text))
		w.Println("the day ends at " + time.UnixMilli(q.Ends).UTC().Format("2006-01-02 15:04 MST"))
	}
	if q.Setting > 0 {
		by := "set by " + q.By
		if q.Says != "" {
			by += " (" + q.Says + ")"
		}
		if q.Reason != "" {
			by += ": " + q.Reason
		}
		w.Println(by + ", " + time.UnixMilli(q.At).UTC().Format("2006-01-02 15:04 MST"))
	}
}
