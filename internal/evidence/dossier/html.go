package dossier

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the template and the style sheet
	"encoding/base64"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

//go:embed page.tmpl
var pageText string

//go:embed style.css
var styleText string

// page renders the HTML form; text is the encoded evidence, packed if it is compressed.
func page(e *Evidence, f *Facts, text []byte, packed bool) ([]byte, error) {
	svg := ""
	var outline []Limb
	if f.Picture != nil && len(f.Picture.Nodes) > 1 {
		outline = limbs(f.Picture)
		if s := f.Picture.SVG(); fits(s) {
			svg = s
		}
	}
	t, err := template.New("page").Funcs(template.FuncMap{
		"step": func(n int) *Step { return f.step(n) }, "short": shortDigest, "when": when, "clock": clock, "took": took,
		"count": excerpt.Thousands, "counted": excerpt.Counted[int], "mark": mark, "word": word, "classOf": classOf, "limits": func(f *Facts) []string { return append(slices.Clone(f.limits()), f.Omitted...) },
		"spent": spent, "opClass": opClass, "attempts": attempts, "lasted": lasted, "cost": cost, "costs": lineage.CostText, "answered": answered, "alike": alike, "changed": changed, "by": by,
	}).Parse(pageText)
	if err != nil {
		return nil, fmt.Errorf("dossier: page template: %w", err)
	}
	var b bytes.Buffer
	err = t.Execute(&b, map[string]any{
		"F": f, "Style": template.CSS(styleText), "SVG": template.HTML(svg), "Limbs": outline,
		"Policy":  "default-src 'none'; style-src " + styleHashes(styleText, svg) + "; base-uri 'none'; form-action 'none'",
		"Signers": signersCommand,
		"Command": "rath verify --head " + f.Sessions[0].Last.String() + " FILE",
	})
	if err != nil {
		return nil, fmt.Errorf("dossier: render page: %w", err)
	}
	// Characters that are still hidden are made visible one by one, so that no markup
	// is lost.
	out := []byte(visible(b.String()))
	begin := htmlBegin
	if packed {
		begin = htmlPacked
	}
	out = append(out, begin...)
	out = append(out, text...)
	return append(out, htmlEnd+"\n</body>\n</html>\n"...), nil
}

// The largest picture that is drawn, in pixels: it is readable when scaled to a page of
// 1,280. A larger one becomes a list.
const (
	mostWidth  = 1900
	mostHeight = 1000
)

// fits reports whether a picture can be read on one screen.
func fits(svg string) bool {
	size := func(name string) float64 {
		_, rest, _ := strings.Cut(svg, " "+name+`="`)
		number, _, _ := strings.Cut(rest, `"`)
		n, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return math.Inf(1)
		}
		return n
	}
	return size("width") <= mostWidth && size("height") <= mostHeight
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

// step returns a line of the timeline by its number, or nil.
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

// classOf returns the colour of a state, mark its sign and word its word: no state is
// shown by colour alone.
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
	return excerpt.Thousands(u.Input) + " in, " + excerpt.Thousands(u.Output) + " out"
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

// lasted formats a duration for display.
func lasted(d time.Duration) string { return took(d.Milliseconds()) }

// cost formats millionths of a dollar: in cents from one dollar on, else in full, with at
// least two decimals.
func cost(micro int64) string {
	if micro == 0 {
		return "–"
	}
	text := strings.TrimRight(fmt.Sprintf("%06d", micro%1_000_000), "0")
	if micro >= 1_000_000 {
		text = fmt.Sprintf("%06d", micro%1_000_000)[:2]
	}
	return excerpt.Thousands(micro/1_000_000) + "." + text + strings.Repeat("0", max(2-len(text), 0))
}

// answered returns the decisions without the questions.
func answered(all []Decision) []Decision {
	return slices.DeleteFunc(slices.Clone(all), func(d Decision) bool { return strings.HasPrefix(d.What, "asked") })
}

// unlike is a group of rejected branches with the same state, reason and step.
type unlike struct {
	State, Reason string
	Step          int
	Of            []Rejection
}

// alike groups the rejected branches by their state, reason and step.
func alike(all []Rejection) []unlike {
	var out []unlike
	for _, r := range all {
		n := slices.IndexFunc(out, func(u unlike) bool { return u.State == r.State && u.Reason == r.Reason && u.Step == r.Step })
		if n < 0 {
			n = len(out)
			out = append(out, unlike{State: r.State, Reason: r.Reason, Step: r.Step})
		}
		out[n].Of = append(out[n].Of, r)
	}
	return out
}

// shownFile is a file of the changes; Open is not folded.
type shownFile struct {
	FileChange
	Open bool
}

// openLines is the number of changed lines shown unfolded.
const openLines = 60

// changed folds the files after the first ones.
func changed(all []FileChange) []shownFile {
	var out []shownFile
	lines := 0
	for _, f := range all {
		own := 0
		for _, h := range f.Hunks {
			own += len(h.Lines)
		}
		lines += own
		out = append(out, shownFile{f, lines <= openLines || len(out) == 0 && own <= 4*openLines})
	}
	return out
}

// maker is a list of steps and the number of omitted ones.
type maker struct {
	Steps []int
	More  int
}

// by returns the last steps of a list, because the document shows their result.
func by(steps []int) maker {
	const shown = 2
	n := max(len(steps)-shown, 0)
	return maker{steps[n:], n}
}

// attempts lists the attempts at a step, "" if the only one is the recorded first.
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

// signersCommand is the command that checks the signers of a document.
const signersCommand = "rath verify --signers FILE_OF_SIGNERS FILE"

// limits returns the limits of the dossier's proof.
func (f *Facts) limits() []string {
	if len(f.Signed) == 0 {
		return limits
	}
	return append([]string{
		"A signature proves that the holder of its key vouches for the run. Your own list of signers decides whether the key counts.",
		"Commits after the signed one, and commits without a reference from a signed one, are not signed. rath verify counts them.",
	}, limits[2:]...)
}

// limits are the limits of every dossier's proof; the first two are of unsigned ones.
var limits = []string{
	"The run is not signed. A forger of the whole file can write another consistent run. To exclude this, compare the head of the home session with one from another source (rath verify --head).",
	"Commits could be missing at the end of the log. The same comparison excludes that too.",
	"Requests are named by the digest of the rendered request. Their text is not kept as one: it follows from the rows before the call, the notes that were recalled and the agent's instructions, in which credentials are masked.",
	"Commits contain the node's record. No hash proves the answers of models and tools, or the node's clock.",
	"Streamed pieces of answers, logs of the host and actions of tools outside of the workspace are not recorded.",
}
