package dossier

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the template and the style sheet
	"encoding/base64"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

//go:embed page.tmpl
var pageText string

//go:embed style.css
var styleText string

// page renders the HTML form; text is the encoded evidence.
func page(e *Evidence, f *Facts, text []byte) ([]byte, error) {
	svg := ""
	if f.Picture != nil {
		svg = f.Picture.SVG()
	}
	t, err := template.New("page").Funcs(template.FuncMap{
		"step": func(n int) *Step { return f.step(n) }, "short": shortDigest, "when": when, "clock": clock, "took": took,
		"count": lineage.Thousands, "counted": counted, "mark": mark, "word": word, "classOf": classOf, "limits": func() []string { return append(slices.Clone(limits), f.Omitted...) },
		"spent": spent, "opClass": opClass, "attempts": attempts,
	}).Parse(pageText)
	if err != nil {
		return nil, fmt.Errorf("dossier: page template: %w", err)
	}
	var b bytes.Buffer
	err = t.Execute(&b, map[string]any{
		"F": f, "Style": template.CSS(styleText), "SVG": template.HTML(svg), "Tall": tall(svg),
		"Policy":  "default-src 'none'; style-src " + styleHashes(styleText, svg) + "; base-uri 'none'; form-action 'none'",
		"Command": "rath verify --head " + f.Sessions[0].Last.String() + " FILE",
	})
	if err != nil {
		return nil, fmt.Errorf("dossier: render page: %w", err)
	}
	// What a text still hides is made visible here, character by character, so that no
	// markup gets lost.
	out := []byte(visible(b.String()))
	out = append(out, htmlBegin...)
	out = append(out, text...)
	return append(out, htmlEnd+"\n</body>\n</html>\n"...), nil
}

// tall reports whether a picture is too high to be shrunk onto the first
// screen: it scrolls instead.
func tall(svg string) bool {
	_, rest, _ := strings.Cut(svg, ` height="`)
	number, _, _ := strings.Cut(rest, `"`)
	h, err := strconv.ParseFloat(number, 64)
	return err == nil && h > 640
}

// styleHashes allows the page's own style sheets and no others.
func styleHashes(own, svg string) string {
	var out []string
	add := func(s string) {
		sum := sha256.Sum256([]byte(s))
		out = append(out, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	add(own)
	if _, rest, ok := strings.Cut(svg, "<style>"); ok {
		style, _, _ := strings.Cut(rest, "</style>")
		add(style)
	}
	return strings.Join(out, " ")
}

// step returns a line of the timeline by its number, nil if there is none.
func (f *Facts) step(n int) *Step {
	if n < 1 || n > len(f.Steps) {
		return nil
	}
	return &f.Steps[n-1]
}

func shortDigest(v any) string {
	switch d := v.(type) {
	case blob.Digest:
		if !d.IsZero() {
			return d.Short()
		}
	case session.Hash:
		if d != (session.Hash{}) {
			return d.Short()
		}
	}
	return "none"
}

func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// classOf is the colour of a state, mark its sign and word its word: no state
// is shown by colour alone.
func classOf(state any) string {
	switch fmt.Sprint(state) {
	case "succeeded", "adopted", "merged":
		return "good"
	case "failed", "timed_out", "rejected":
		return "bad"
	case "needs_review", "cancelled":
		return "warn"
	}
	return "calm"
}

func mark(state any) string {
	return map[string]string{"good": "✓", "bad": "✕", "warn": "!", "calm": "…"}[classOf(state)]
}

func word(s run.State) string {
	switch s {
	case "", run.Running, run.Queued:
		return "not ended"
	case run.Waiting:
		return "waiting"
	}
	return strings.ReplaceAll(string(s), "_", " ")
}

func spent(u session.Usage) string {
	if u.Tokens() == 0 {
		return ""
	}
	return lineage.Thousands(u.Input) + " in, " + lineage.Thousands(u.Output) + " out"
}

func opClass(op string) string {
	switch op {
	case "+":
		return "add"
	case "-":
		return "del"
	}
	return ""
}

// attempts lists those at a step, unless the first one was recorded and no other
// made.
func attempts(s *Step) string {
	if len(s.Attempts) == 1 && s.Attempts[0] == (Attempt{1, "recorded"}) {
		return ""
	}
	var out []string
	for _, a := range s.Attempts {
		out = append(out, fmt.Sprintf("attempt %d %s", a.N, a.What))
	}
	return strings.Join(out, ", ")
}

// limits says what no dossier shows.
var limits = []string{
	"Nothing is signed. Who can rewrite all of this file can write another run that is consistent in itself. Comparing the head of the home session with one that came another way (rath verify --head) excludes that.",
	"Commits could be missing at the end of the log. The same comparison excludes that too.",
	"Prompts are named by the digest of the rendered request. Their text is not kept: it follows from the rows before the call, the notes that were recalled and the agent's own instructions.",
	"Commits say what the node recorded. That a model or a tool really gave an answer, and that the node's clock was right, no hash can show.",
	"Streamed pieces of answers, logs of the host and what a tool did outside of its workspace are not recorded.",
}
