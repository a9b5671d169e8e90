package main

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"strings"
	"testing"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

// TestAttach: images of the command line are in the first message of the session, also
// with the store of a server. Files that are no images are rejected before a task is
// sent.
func TestAttach(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	_, url := startDev(t, dir)
	var picture bytes.Buffer
	must.Do(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 3, 2))))
	pic := must.Get(session.NewImage(picture.Bytes()))(t)
	for name, data := range map[string][]byte{"pic.png": picture.Bytes(), "text.png": []byte("no image"), "large.png": make([]byte, session.MaxImage+1)} {
		must.Do(t, os.WriteFile(name, data, 0o600))
	}
	for _, args := range [][]string{
		{"run", "--id", "one"}, {"run", "--id", "two", "--server", url}, {"submit", "agent", "--id", "three", "--wait", "--server", url},
	} {
		args = append(args, "-m", "what is it?", "--attach", "pic.png", "--attach", "pic.png", "--tool-choice", "none", "-q")
		if code, out, errs := rath(t, args...); code != 0 {
			t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
		}
	}
	for _, id := range []string{"one", "two", "three"} {
		if code, out, errs := rath(t, "show", id, "--format", "json", "--full"); code != 0 || strings.Count(out, pic.Digest.String()) < 2 {
			t.Errorf("show %s: exit %d: %s%s", id, code, out, errs)
		}
	}
	for want, args := range map[string][]string{
		"--attach text.png: no image that models see: it is no PNG, JPEG, GIF or WebP": {"run", "-m", "x", "--attach", "text.png"},
		"large.png is larger than 3,932,160 bytes":                                     {"run", "-m", "x", "--attach", "large.png"},
		"--attach needs a prompt: -m TEXT":                                             {"run", "--attach", "pic.png"},
		"--tool-choice and --attach are of the workflow agent, and this is fanout":     {"run", "fanout", "-m", "x", "--attach", "pic.png"},
		`give --tool-choice, or "tool_choice" in the input, not both`:                  {"run", "-m", `{"prompt":"x","tool_choice":"auto"}`, "--tool-choice", "none"},
		"the input of agent is a text, or an object with prompt":                       {"run", "-m", `[1]`, "--tool-choice", "none"},
		"--attach: 17 images, at most 16 are taken":                                    append([]string{"run", "-m", "x"}, strings.Fields(strings.Repeat("--attach pic.png ", 17))...),
	} {
		if code, out, errs := rath(t, args...); code != app.ExitUsage || !strings.Contains(errs, want) {
			t.Errorf("%v: exit %d: %s%s; want %q", args, code, out, errs, want)
		}
	}
}
