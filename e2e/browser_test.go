//go:build e2e && linux

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/webtest"
)

// browser is a tab of Chromium. Each violation of a policy, each error of the console and
// each exception fails its test.
type browser struct {
	t       *testing.T
	ctx     context.Context
	missing string // the end of an address whose 404 is meant
	cut     bool   // the server goes away: errors of the network are meant
}

// browse opens a browser until the test ends.
func browse(t *testing.T) *browser {
	t.Helper()
	need(t, "chromium", "chromium")
	ctx, cancel := chromedp.NewContext(t.Context(), chromedp.WithAllocatorOptions(chromedp.NoSandbox, chromedp.WindowSize(1280, 900), chromedp.UserDataDir(t.TempDir())))
	t.Cleanup(cancel)
	return (&browser{t: t, ctx: ctx}).open()
}

// tab opens another tab.
func (b *browser) tab() *browser {
	b.t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	b.t.Cleanup(cancel)
	return (&browser{t: b.t, ctx: ctx}).open()
}

func (b *browser) open() *browser {
	b.t.Helper()
	must.Do(b.t, chromedp.Do(b.ctx)) // the tab lives as long as the context of its first call
	must.Do(b.t, chromedp.Listen(b.ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.t.Errorf("a script failed: %+v", e.ExceptionDetails)
		case *runtime.EventConsoleAPICalled:
			b.t.Errorf("the console: %s %+v", e.Type, e.Args)
		case *log.EventEntryAdded:
			if e.Entry.Level != "verbose" && (!b.cut || e.Entry.Source != log.EntrySourceNetwork) && (b.missing == "" || !strings.HasSuffix(e.Entry.URL, b.missing)) {
				b.t.Errorf("%s: %s (%s)", e.Entry.Source, e.Entry.Text, e.Entry.URL)
			}
		}
	}))
	return b
}

// do runs actions; each waits for the elements that it needs.
func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.fatal(err)
	}
}

// fatal ends the test with the text of the page.
func (b *browser) fatal(err error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
	text, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText"))
	b.t.Fatalf("%v\nat %.6000s", err, text)
}

// is evaluates a condition; a page that is left meanwhile has none.
func (b *browser) is(condition string) bool {
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+condition+")"))
	return err == nil && ok
}

// until waits until a condition is true.
func (b *browser) until(condition string) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); !b.is(condition); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.fatal(fmt.Errorf("after a minute there is no %s", condition))
		}
	}
}

// sees waits until an element has a text.
func (b *browser) sees(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("[...document.querySelectorAll(%q)].some((e) => e.innerText.includes(%q))", selector, text))
}

// click clicks an element when it can be seen.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// to opens an address.
func (b *browser) to(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url))
}

var loginLine = regexp.MustCompile(`(?m)^web\s+((http://\S+)/login#\S+)`)

// devPages runs `rath dev` with the workflows of webtest and its scripted model on a new
// desk with files, at an address, and returns the link of its pages' login.
func devPages(t *testing.T, at string, files map[string]string, flags ...string) (d *desk, login, url string) {
	t.Helper()
	program := must.Get(os.Executable())(t)
	d = newDesk(t, childEnv+"=pages", "USER=bob")
	d.file("world.txtar", string(webtest.Script))
	must.Do(t, os.Mkdir(filepath.Join(d.dir, "work"), 0o755))
	for name, text := range webtest.Files {
		d.file(filepath.Join("work", name), text)
	}
	for name, text := range files {
		d.file(name, text)
	}
	dev, _ := d.dev(append([]string{"--node", program, "--script", "world.txtar", "--http", at}, flags...)...)
	dev.until("login", func() bool { return loginLine.MatchString(dev.stdout.String()) })
	m := loginLine.FindStringSubmatch(dev.stdout.String())
	return d, m[1], m[2]
}
