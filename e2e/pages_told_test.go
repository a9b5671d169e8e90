//go:build e2e && linux

package e2e

import (
	"encoding/json"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/webtest"
)

// slackLink is the one line of a message to Slack: the address and the text of a link.
var slackLink = regexp.MustCompile(`^<([^|>]+)\|([^>]+)>$`)

// told waits for one message with all words at a receiver.
func told(t *testing.T, r *webtest.Receiver, words ...string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if all := r.With(words...); len(all) == 1 {
			return all[0]
		} else if len(all) > 1 || time.Now().After(end) {
			t.Fatalf("messages with %q: %q of %q", words, all, r.With())
		}
	}
}

// TestToldAndAnswered is the way of a question to a person: a message in Slack, an e-mail
// when nobody has answered, and the answer at the link of the message, on a phone.
func TestToldAndAnswered(t *testing.T) {
	t.Parallel()
	r := webtest.StartReceiver(t)
	at := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
	d, _, url := devPages(t, at, map[string]string{
		"hook": r.URL() + "/ops",
		"targets.yaml": `
link: http://` + at + `
targets:
  ops: {form: slack, url: file:hook, private: true}
  post: {form: mail, server: "smtp://` + r.Mail() + `", from: rath@example.com, to: [ana@example.com], private: true}
rules:
  - {on: [question], to: ops, again: {after: 1s, to: post}}
`,
	}, "--targets", "targets.yaml")
	d.rath("submit", "deploy", "--id", "release-142", "-C", "work", "-m", "Roll out slug 1.4.2.").want(t, 0)

	var body struct{ Text string }
	_, text, _ := strings.Cut(told(t, r, "200 /ops "), "{")
	must.Do(t, json.Unmarshal([]byte("{"+text), &body))
	m := slackLink.FindStringSubmatch(body.Text)
	if m == nil || !strings.HasPrefix(m[1], url+"/t/default/questions/release-142/") || m[2] != "Question: run release-142 of deploy waits for an answer" {
		t.Fatalf("the message in Slack: %q", body.Text)
	}
	link := html.UnescapeString(m[1])
	told(t, r, "mail ", "To: ana@example.com", "Subject: Still open: run release-142 of deploy waits for an answer", "\n"+link+"\n")

	b := browse(t)
	b.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	b.to(link)
	b.until("location.pathname === '/login'")
	_, code, _ := strings.Cut(strings.TrimSpace(d.rath("open").stdout), "#")
	b.do(chromedp.SendKeys(chromedp.CSS("#secret"), code+"\r"))
	b.sees("#qh", "asks to call")
	b.sees("tr.a", "slug:1.4.2")
	if !b.is("innerWidth === 390 && document.documentElement.scrollWidth <= innerWidth && location.href === " + fmt.Sprintf("%q", link)) {
		b.fatal(fmt.Errorf("no page of a phone at %s", link))
	}
	// The bar with the answers is at the bottom of the screen, where it covers no question.
	b.until("document.getElementById('approve').getBoundingClientRect().bottom <= innerHeight")
	b.click("#approve")
	b.sees("main", "Nobody waits for an answer.")
	b.to(url + "/t/default/runs/release-142")
	b.sees(".state", "Done.")
	b.sees("#rows", "It is rolled out.")
	if all := r.With(); len(all) != 2 {
		t.Errorf("messages: %q", all)
	}
}
