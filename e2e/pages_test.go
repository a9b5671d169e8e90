//go:build e2e && linux

package e2e

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/webtest"
	"github.com/rathcluster/rath/node"
)

func init() {
	children["pages"] = func() error { node.Main(webtest.Workflows()...); return nil }
}

// TestPages uses the pages in a browser: the link of the login, a run that is watched, an
// approval, a restart from a row, and the logout.
func TestPages(t *testing.T) {
	t.Parallel()
	d, login, url := devPages(t, "127.0.0.1:0", nil)
	b := browse(t)
	b.to(login)
	b.sees(".who", "bob")

	// A list and a run that fill while they are open.
	b.to(url + "/t/default/runs")
	b.sees("main", "No runs yet.")
	d.rath("submit", "talk", "--id", "story-1", "-m", "Tell a story, please.").want(t, 0)
	b.click("#run-story-1 a")
	b.sees("h1", "Tell a story, please.")
	b.sees(".state", "Done.")
	b.sees("#rows", "all tests were green again.")
	b.until("!document.querySelector('main').dataset.events && document.getElementById('connection').hidden")

	b.do(chromedp.SendKeys(chromedp.CSS("#find"), "tests were green"))
	b.sees(".findrow", "1 rows with it.")
	b.to(url + "/t/default/runs/story-1?q=nothing")
	b.sees(".findrow", "0 rows with it.")

	eightTabs(t, b, d, url)

	// A question with a difference.
	d.rath("submit", "deploy", "--id", "release-142", "-C", "work", "-m", "Roll out slug 1.4.2.").want(t, 0)
	b.to(url + "/t/default/runs/release-142")
	b.click(".state a.go")
	b.sees("#qh", "asks to call")
	b.sees("tr.d", "slug:1.4.1")
	b.sees("tr.a", "slug:1.4.2")
	for !b.is("document.activeElement.id === 'approve'") { // keys rest where a question opens
		b.do(chromedp.KeyEvent("a"))
	}
	b.do(chromedp.KeyEvent("\r"))
	b.sees("main", "Nobody waits for an answer.")

	// A restart from its answer, with another message.
	b.to(url + "/t/default/runs/release-142")
	b.sees(".state", "Done.")
	b.sees("#rows", "It is rolled out.")
	b.click("#rows > li:last-child summary")
	b.click("#rows > li:last-child a.restart")
	b.do(chromedp.SendKeys(chromedp.CSS("#restart textarea"), "Tell a story, then."))
	b.click("#restart button.go")
	b.until("location.pathname.startsWith('/t/default/runs/') && !location.pathname.endsWith('release-142')")
	b.sees("h1", "Tell a story, then.")
	b.sees(".drafted", "Once there was a slug")
	b.sees(".state", "Done.")
	restarted := must.Get(chromedp.Run(b.ctx, chromedp.Location()))(t)
	b.click(".who button")
	b.until("location.pathname.startsWith('/login')")
	b.to(restarted)
	if b.is("!location.pathname.startsWith('/login')") {
		t.Errorf("after the logout there is the page %s", restarted)
	}
}

// eightTabs opens a run in eight tabs, over the six connections that a browser makes.
func eightTabs(t *testing.T, b *browser, d *desk, url string) {
	t.Helper()
	d.rath("submit", "talk", "--id", "hanging-1", "-m", "Write the changelog.").want(t, 0)
	var tabs []*browser
	for range 8 {
		tab := b.tab()
		tab.to(url + "/t/default/runs/hanging-1")
		tab.sees("#liveness", map[bool]string{true: "Live", false: "Read every"}[len(tabs) < 4])
		tabs = append(tabs, tab)
	}
	tabs[7].click("details.stop > summary")
	tabs[7].click("details.stop button.no")
	for _, tab := range tabs {
		tab.sees(".state", "Stopped.")
		must.Do(t, chromedp.Cancel(tab.ctx))
	}
}
