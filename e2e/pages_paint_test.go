//go:build e2e && linux

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/web/pages"
)

// paintBar bounds the time until the first paint of the page of a run with 1,000 rows, as a
// multiple of that of a static file of its bytes.
const paintBar = 1.5

// painted opens an address, and returns the milliseconds until its first paint with content.
func (b *browser) painted(url string) float64 {
	b.t.Helper()
	const first = "performance.getEntriesByName('first-contentful-paint')"
	b.to(url)
	b.until(first + ".length > 0")
	return must.Get(chromedp.Run(b.ctx, chromedp.Evaluate[float64](first+"[0].startTime")))(b.t)
}

// TestFirstPaint compares the page of a run with 1,000 rows with a static file of the same
// bytes, sheet and script, in turn.
func TestFirstPaint(t *testing.T) {
	d, login, url := devPages(t, "127.0.0.1:0", nil)
	d.rath("submit", "rows", "--id", "rows-1", "-m", "999").want(t, 0)
	b := browse(t)
	b.to(login)
	b.sees(".who", "bob")
	page := url + "/t/default/runs/rows-1"
	b.to(page)
	b.sees(".state", "Done.")
	b.sees(".findrow", "1,000 rows")
	text := map[string]string{}
	for _, at := range []string{"/t/default/runs/rows-1", "/static/rath.css", "/static/rath.js", "/static/icon.svg"} {
		text[at] = must.Get(chromedp.Run(b.ctx, chromedp.Evaluate[string](fmt.Sprintf("fetch(%q).then((r) => r.text())", at), chromedp.EvalAwaitPromise)))(t)
	}
	static := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pages.Secure(w.Header())
		http.ServeContent(w, r, r.URL.Path+map[bool]string{true: ".html"}[!strings.Contains(r.URL.Path, ".")], time.Time{}, strings.NewReader(text[r.URL.Path]))
	}))
	defer static.Close()
	var ours, file, ratios []float64
	for range 31 {
		ours = append(ours, b.painted(page))
		file = append(file, b.painted(static.URL+"/t/default/runs/rows-1"))
		ratios = append(ratios, ours[len(ours)-1]/file[len(file)-1])
	}
	median := func(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }
	t.Logf("first paint after %.0f ms, of a static file of %d bytes after %.0f ms: %.2f times", median(ours), len(text["/t/default/runs/rows-1"]), median(file), median(ratios))
	if have := median(ratios); have > paintBar {
		t.Errorf("the first paint of a run with 1,000 rows takes %.2f times as long as that of a static file, bar %.1f (%.0f)", have, paintBar, ratios)
	}
}
