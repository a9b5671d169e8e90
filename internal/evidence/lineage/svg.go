package lineage

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/rathcluster/rath/internal/core/excerpt"
)

// Measures of the picture in pixels.
const (
	cardWidth  = 300
	cardPad    = 12
	headHeight = 34
	subHeight  = 17
	lineHeight = 16
	lineGap    = 3
	maxActor   = 100
	maxWrap    = 2 // maximum number of lines of text per line of a timeline
	fontText   = 12.0
	fontHead   = 14.0
	fontSmall  = 11.0
	legendRoom = 30
	titleRoom  = 30
)

// svgStyle colours the picture, for light and for dark pages. Each colour accompanies a
// word or a shape with the same meaning.
const svgStyle = `<style>` +
	`.rath-g{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-size:12px}` +
	`.rath-g text{fill:#1f2933}` +
	`.rath-g .page{fill:#ffffff}` +
	`.rath-g .card{fill:#ffffff;stroke:#cbd2d9;stroke-width:1}` +
	`.rath-g .head{font-size:14px;font-weight:650}` +
	`.rath-g .mute,.rath-g .mute tspan{fill:#616e7c}` +
	`.rath-g .small{font-size:11px}` +
	`.rath-g .actor{font-weight:600}` +
	`.rath-g .err{fill:#c2410c}` +
	`.rath-g .edge{fill:none;stroke:#9aa5b1;stroke-width:1.6}` +
	`.rath-g .tip{fill:#9aa5b1}` +
	`.rath-g .continues{stroke-dasharray:2 4;stroke-linecap:round}` +
	`.rath-g .detached{stroke-dasharray:7 4}` +
	`.rath-g .adopted-e,.rath-g .merged-e{stroke-width:2.6}` +
	`.rath-g .adopted-e{stroke:#2f9e44}.rath-g .adopted-t{fill:#2f9e44}` +
	`.rath-g .merged-e{stroke:#0c8599}.rath-g .merged-t{fill:#0c8599}` +
	`.rath-g .bar-open{fill:#4c6ef5}.rath-g .bar-adopted{fill:#2f9e44}.rath-g .bar-merged{fill:#0c8599}` +
	`.rath-g .bar-rejected{fill:#e03131}.rath-g .bar-cancelled{fill:#868e96}.rath-g .bar-failed{fill:#e8590c}` +
	`.rath-g .pill{font-size:10px;font-weight:700;letter-spacing:.04em}` +
	`.rath-g .bg-adopted{fill:#ebfbee}.rath-g .bg-merged{fill:#e3fafc}.rath-g .bg-rejected{fill:#fff5f5}` +
	`.rath-g .bg-cancelled{fill:#f1f3f5}.rath-g .bg-failed{fill:#fff4e6}` +
	`.rath-g text.fg-adopted{fill:#2b8a3e}.rath-g text.fg-merged{fill:#0b7285}.rath-g text.fg-rejected{fill:#c92a2a}` +
	`.rath-g text.fg-cancelled{fill:#495057}.rath-g text.fg-failed{fill:#d9480f}` +
	`@media (prefers-color-scheme:dark){` +
	`.rath-g text{fill:#e4e7eb}.rath-g .page{fill:#12161b}.rath-g .card{fill:#1b2129;stroke:#39434e}` +
	`.rath-g .mute,.rath-g .mute tspan{fill:#9aa5b1}.rath-g .err{fill:#ff922b}` +
	`.rath-g .edge{stroke:#616e7c}.rath-g .tip{fill:#616e7c}` +
	`.rath-g .adopted-e{stroke:#51cf66}.rath-g .adopted-t{fill:#51cf66}` +
	`.rath-g .merged-e{stroke:#3bc9db}.rath-g .merged-t{fill:#3bc9db}` +
	`.rath-g .bg-adopted{fill:#1b3a24}.rath-g .bg-merged{fill:#133b42}.rath-g .bg-rejected{fill:#44201f}` +
	`.rath-g .bg-cancelled{fill:#2c333b}.rath-g .bg-failed{fill:#46290f}` +
	`.rath-g text.fg-adopted{fill:#8ce99a}.rath-g text.fg-merged{fill:#66d9e8}.rath-g text.fg-rejected{fill:#ffa8a8}` +
	`.rath-g text.fg-cancelled{fill:#ced4da}.rath-g text.fg-failed{fill:#ffc078}` +
	`}</style>`

// SVG returns the picture as one SVG element: without scripts, references or fonts of its
// own, so that it can be embedded in a page or be a file.
func (p *Picture) SVG() string {
	var b strings.Builder
	sizes := make([][2]float64, len(p.Nodes))
	index := map[string]int{}
	for i := range p.Nodes {
		sizes[i] = [2]float64{cardWidth, p.Nodes[i].height()}
		index[p.Nodes[i].ID] = i
	}
	edges := make([][2]int, len(p.Edges))
	for i, e := range p.Edges {
		edges[i] = [2]int{index[e.From], index[e.To]}
	}
	l := arrange(sizes, edges, spacing{layer: 64, node: 22, joint: 6, margin: 20})
	top := 0.0
	if p.Title != "" {
		top = titleRoom
	}
	w, h := max(l.width, 560), l.height+top+legendRoom
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" class="rath-g" role="img" aria-label="%s" viewBox="0 0 %s %s" width="%s" height="%s">`,
		escape(cmp.Or(p.Title, "lineage of sessions")), num(w), num(h), num(w), num(h))
	b.WriteString(svgStyle)
	fmt.Fprintf(&b, `<rect class="page" width="%s" height="%s" rx="8"/>`, num(w), num(h))
	if p.Title != "" {
		text(&b, 20, 30, "head", fit(p.Title, w-40, fontHead*1.05))
	}
	fmt.Fprintf(&b, `<g transform="translate(0 %s)">`, num(top))
	for _, r := range l.routes {
		p.Edges[r.edge].draw(&b, l, r)
	}
	for i := range p.Nodes {
		p.Nodes[i].draw(&b, l.boxes[i])
	}
	b.WriteString("</g>")
	p.legend(&b, 20, h-14, w)
	b.WriteString("</svg>\n")
	return b.String()
}

const room = cardWidth - 7 - 2*cardPad // for the text of a card

func (n *Node) height() float64 {
	h := float64(headHeight) + cardPad - 4
	actors := n.actorRoom()
	for _, l := range n.Lines {
		h += lineHeight*float64(len(l.wrapped(actors))) + lineGap
	}
	if n.Title != "" {
		h += subHeight
	}
	if n.Hidden > 0 {
		h += lineHeight + lineGap
	}
	if n.Last && n.Reason != "" {
		h += lineHeight*float64(len(wrap(n.Reason, room, fontText, maxWrap))) + 12
	}
	return h
}

// actorRoom returns the width of the column of actors: the width of the widest actor, at
// most maxActor.
func (n *Node) actorRoom() float64 {
	w := 0.0
	for _, l := range n.Lines {
		w = max(w, measure(l.Actor, fontText*1.06)+10)
	}
	return min(w, maxActor)
}

func (l *Line) wrapped(actors float64) []string { return wrap(l.Text, room-actors, fontText, maxWrap) }

func (n *Node) draw(b *strings.Builder, at box) {
	if n.Link != "" {
		fmt.Fprintf(b, `<a href="%s">`, escape(n.Link))
	}
	class := dispositionClass(n.Disposition)
	fmt.Fprintf(b, `<g><title>%s</title>`, escape(n.summary()))
	fmt.Fprintf(b, `<rect class="card" x="%s" y="%s" width="%s" height="%s" rx="7"/>`, num(at.x), num(at.y), num(at.w), num(at.h))
	fmt.Fprintf(b, `<path class="bar-%s" d="M%s %sv%s a7 7 0 0 1 -7 -7 v%s a7 7 0 0 1 7 -7z"/>`,
		class, num(at.x+7), num(at.y), num(at.h), num(-(at.h - 14)))
	x, y := at.x+7+cardPad, at.y+23
	pill := 0.0
	if n.Last && n.Disposition != Open {
		word := strings.ToUpper(line(n.Disposition, 12))
		pill = measure(word, 10)*1.12 + 14
		fmt.Fprintf(b, `<rect class="bg-%s" x="%s" y="%s" width="%s" height="17" rx="8.5"/>`, class, num(at.x+at.w-cardPad-pill), num(at.y+9), num(pill))
		fmt.Fprintf(b, `<text class="pill fg-%s" x="%s" y="%s" text-anchor="middle">%s</text>`,
			class, num(at.x+at.w-cardPad-pill/2), num(at.y+21), escape(word))
	}
	head := fit(n.Label, room-pill-60, fontHead)
	text(b, x, y, "head", head)
	text(b, x+measure(head, fontHead)*1.06+8, y, "mute", "v"+n.span())
	y = at.y + headHeight
	if n.Title != "" {
		text(b, x, y+9, "mute small", fit(n.Title, room, fontSmall))
		y += subHeight
	}
	for i, l := range n.Lines {
		if n.Hidden > 0 && i == n.hiddenAt() {
			y = n.more(b, x, y)
		}
		y = l.draw(b, x, y, n.actorRoom())
	}
	if n.Hidden > 0 && len(n.Lines) == 0 {
		y = n.more(b, x, y)
	}
	if n.Last && n.Reason != "" {
		reason := wrap(n.Reason, room, fontText, maxWrap)
		fmt.Fprintf(b, `<rect class="bg-%s" x="%s" y="%s" width="%s" height="%s" rx="4"/>`,
			class, num(x-5), num(y+3), num(room+10), num(lineHeight*float64(len(reason))+6))
		for i, part := range reason {
			text(b, x, y+18+lineHeight*float64(i), "fg-"+class, part)
		}
	}
	b.WriteString("</g>")
	if n.Link != "" {
		b.WriteString("</a>")
	}
}

func (n *Node) more(b *strings.Builder, x, y float64) float64 {
	text(b, x, y+12, "mute", fmt.Sprintf("… %d more", n.Hidden))
	return y + lineHeight + lineGap
}

// summary describes a node to readers who cannot see it.
func (n *Node) summary() string {
	s := n.Label + " " + n.span()
	if n.Disposition != Open { // the session of an ended run is not called open
		s += ", " + line(n.Disposition, 20)
	}
	if n.Title != "" {
		s += ", " + n.Title
	}
	if n.Last && n.Reason != "" {
		s += ", " + n.Reason
	}
	return s
}

// draw writes a line and returns the position of the next one.
func (l *Line) draw(b *strings.Builder, x, y, actors float64) float64 {
	class := ""
	if l.Failed {
		class = "err"
	}
	if l.Actor != "" {
		text(b, x, y+12, "actor", fit(l.Actor, actors-6, fontText*1.06))
	}
	for _, part := range l.wrapped(actors) {
		text(b, x+actors, y+12, class, part)
		y += lineHeight
	}
	return y + lineGap
}

// draw draws an edge as a curve through its joints.
func (e Edge) draw(b *strings.Builder, l *layout, r route) {
	from, to := l.boxes[r.boxes[0]], l.boxes[r.boxes[len(r.boxes)-1]]
	x, y := from.x+from.w, port(from, l, r, true)
	fmt.Fprintf(b, `<path class="edge %s %s-e" d="M%s %s`, e.Kind, e.Kind, num(x), num(y))
	curve := func(tx, ty float64) {
		half := (tx - x) / 2
		fmt.Fprintf(b, "C%s %s %s %s %s %s", num(x+half), num(y), num(tx-half), num(ty), num(tx), num(ty))
		x, y = tx, ty
	}
	for _, i := range r.boxes[1 : len(r.boxes)-1] {
		j := l.boxes[i]
		curve(j.x, j.middle())
		x = j.x + j.w
		fmt.Fprintf(b, "L%s %s", num(x), num(y))
	}
	tip := 7.0
	if e.Kind == EdgeContinues {
		tip = 0
	}
	curve(to.x-tip, port(to, l, r, false))
	b.WriteString(`"/>`)
	if tip > 0 {
		fmt.Fprintf(b, `<path class="tip %s-t" d="M%s %sl-8 -4.5v9z"/>`, e.Kind, num(to.x), num(y))
	}
}

// port returns the position at which an edge touches its node: edges of one side share it
// evenly, in the order of the boxes at their other ends.
func port(at box, l *layout, r route, out bool) float64 {
	joined := at.before
	next := r.boxes[len(r.boxes)-2]
	if out {
		joined, next = at.after, r.boxes[1]
	}
	rank := 0
	for _, o := range joined {
		if l.boxes[o].middle() < l.boxes[next].middle() {
			rank++
		}
	}
	step := min(14, (at.h-28)/float64(max(len(joined), 1)))
	return at.middle() + (float64(rank)-float64(len(joined)-1)/2)*step
}

func (p *Picture) legend(b *strings.Builder, x, y, width float64) {
	words := map[string]string{
		EdgeContinues: "goes on", EdgeForked: "fork", EdgeDetached: "copy", EdgeAdopted: "adopted into", EdgeMerged: "merged into",
	}
	for _, k := range []string{EdgeForked, EdgeContinues, EdgeAdopted, EdgeMerged, EdgeDetached} {
		if !slices.ContainsFunc(p.Edges, func(e Edge) bool { return e.Kind == k }) {
			continue
		}
		fmt.Fprintf(b, `<path class="edge %s %s-e" d="M%s %sh26"/>`, k, k, num(x), num(y-4))
		text(b, x+32, y, "mute small", words[k])
		x += 32 + measure(words[k], fontSmall) + 22
	}
	if p.Omitted > 0 {
		note := excerpt.Counted(p.Omitted, "session") + " more are not shown"
		text(b, max(x, width-20-measure(note, fontSmall)), y, "mute small", note)
	}
}

func text(b *strings.Builder, x, y float64, class, s string) {
	if s == "" {
		return
	}
	if class != "" {
		class = ` class="` + class + `"`
	}
	fmt.Fprintf(b, `<text%s x="%s" y="%s">%s</text>`, class, num(x), num(y), escape(s))
}

// num formats a coordinate with at most one decimal.
func num(f float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
}

// escape makes any text safe as XML text and in attributes.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '&':
			b.WriteString("&amp;")
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '"':
			b.WriteString("&#34;")
		case r == '\'':
			b.WriteString("&#39;")
		case r < 0x20 || r == 0xfffe || r == 0xffff || r == unicode.ReplacementChar:
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// measure estimates the width of a text in a proportional font, because the font's
// metrics are not available. The estimate tends to be too wide.
func measure(s string, size float64) float64 {
	w := 0.0
	for _, r := range s {
		switch {
		case strings.ContainsRune("ijl.,:;'|!()[]I ft", r):
			w += 0.34
		case strings.ContainsRune("mwMW@%", r):
			w += 0.9
		case r >= 0x1100 && (unicode.Is(unicode.Han, r) || unicode.Is(unicode.Hangul, r) || unicode.In(r, unicode.Hiragana, unicode.Katakana) || r >= 0x1f000):
			w += 1.05
		case unicode.IsUpper(r):
			w += 0.68
		default:
			w += 0.57
		}
	}
	return w * size
}

// fit cuts a text to a width.
func fit(s string, room, size float64) string {
	if measure(s, size) <= room {
		return s
	}
	w := measure("…", size)
	for i, r := range s {
		if w += measure(string(r), size); w > room {
			return strings.TrimRight(s[:i], " ") + "…"
		}
	}
	return s
}

// wrap breaks a text into lines of a width, the last of at most lines cut.
func wrap(s string, room, size float64, lines int) []string {
	var out []string
	for len(out) < lines-1 && measure(s, size) > room {
		at, w := 0, 0.0
		for i, r := range s {
			if r == ' ' {
				at = i
			}
			if w += measure(string(r), size); w > room {
				break
			}
		}
		if at == 0 {
			break // one long word
		}
		out = append(out, s[:at])
		s = s[at+1:]
	}
	return append(out, fit(s, room, size))
}
