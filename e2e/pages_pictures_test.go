//go:build e2e && linux

package e2e

import (
	"bytes"
	"flag"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/rathcluster/rath/internal/testkit/must"
)

var flagPictures = flag.String("pictures", "", "directory that keeps what TestPictures takes")

// call sends a command to the tab.
func call[P, R any](b *browser, c cdp.Command[P, R], params P) R {
	b.t.Helper()
	return must.Get(chromedp.Call(b.ctx, c, params))(b.t)
}

// picture writes what the tab shows.
func (b *browser) picture(file string) {
	b.t.Helper()
	shot := call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: "png"})
	var out bytes.Buffer
	e := png.Encoder{CompressionLevel: png.BestCompression}
	must.Do(b.t, e.Encode(&out, must.Get(png.Decode(bytes.NewReader(shot.Data)))(b.t)))
	must.Do(b.t, os.WriteFile(file, out.Bytes(), 0o644))
}

// TestPictures takes a picture of each page of real runs: in light and dark, at 1280 and
// 400 pixels, and without the script. No page may scroll sideways.
func TestPictures(t *testing.T) {
	d, login, url := devPages(t, "127.0.0.1:0", nil)
	dir := *flagPictures
	if dir == "" {
		dir = t.TempDir()
	}
	for _, args := range [][]string{
		{"mend", "--id", "slug-mend", "-C", "work", "-m", "slug drops the last word of a title; mend it."},
		{"talk", "--id", "changelog-9", "-m", "Write the changelog of 1.4.2."},
		{"talk", "--id", "hostile-1", "-m", "hostile <script>alert(0)</script>"},
		{"talk", "--id", "busy-1", "-m", "Try again"},
		{"rows", "--id", "rows-1", "-m", "Make many rows."},
		{"deploy", "--id", "release-142", "-C", "work", "-m", "Roll out slug 1.4.2."},
		{"deploy", "--id", "release-143", "-C", "work", "-m", "Roll out slug 1.4.3 to all customers."},
		{"choose", "--id", "rollout-3"},
	} {
		d.rath(append([]string{"submit"}, args...)...).want(t, 0)
	}
	b := browse(t)
	b.to(login)
	b.sees(".who", "bob")
	b.missing = "runs/nobody"
	for id, state := range map[string]string{"slug-mend": "Done.", "hostile-1": "Done.", "rows-1": "Done.", "release-142": "Asks.", "rollout-3": "Asks.", "changelog-9": "Stuck."} {
		b.to(url + "/t/default/runs/" + id)
		b.sees(".state", state)
	}
	pages := map[string]string{
		"runs": "runs", "run": "runs/slug-mend", "stuck": "runs/changelog-9", "restart": "runs/release-142?restart=step-0#restart", "asks": "runs/release-142", "hostile": "runs/hostile-1", "rows": "runs/rows-1", "step": "runs/slug-mend/step/0",
		"questions": "questions", "question": "questions/release-142/0.0.approval", "choose": "questions/rollout-3/0",
		"files": "runs/slug-mend/files?path=slug.sh&line=2", "picture": "runs/slug-mend/files?path=dot.gif", "sessions": "sessions", "fleet": "fleet", "missing": "runs/nobody",
	}
	for _, v := range []struct {
		name, scheme string
		width        int64
		script       bool
	}{{"1280-light", "light", 1280, true}, {"1280-dark", "dark", 1280, true}, {"400-light", "light", 400, true}, {"400-dark", "dark", 400, true}, {"1280-bare", "light", 1280, false}, {"400-bare", "light", 400, false}} {
		call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: v.scheme}}})
		call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !v.script})
		if v.width == 1280 && v.script { // for the README
			b.do(chromedp.EmulateViewport(1280, 640))
			b.to(url + "/t/default/runs/slug-mend")
			b.picture(filepath.Join(dir, "readme-"+v.scheme+".png"))
		}
		b.do(chromedp.EmulateViewport(v.width, 800))
		for name, path := range pages {
			b.to(url + "/t/default/" + path)
			if v.script { // without scripts nothing can be asked
				if b.is("document.documentElement.scrollWidth > innerWidth") {
					t.Errorf("%s scrolls sideways at %s", path, v.name)
				}
			}
			b.picture(filepath.Join(dir, name+"-"+v.name+".png"))
		}
	}
}
