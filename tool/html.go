package tool

import (
	"io"
	"net/url"
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// left are elements that a browser does not show as text.
var left = map[atom.Atom]bool{
	atom.Script: true, atom.Style: true, atom.Noscript: true, atom.Template: true, atom.Svg: true, atom.Math: true, atom.Iframe: true,
	atom.Object: true, atom.Select: true, atom.Textarea: true, atom.Nav: true,
}

// blocks begin and end a line; those with true are separated by an empty line.
var blocks = map[atom.Atom]bool{
	atom.Title: true, atom.P: true, atom.H1: true, atom.H2: true, atom.H3: true, atom.H4: true, atom.H5: true, atom.H6: true, atom.Ul: true, atom.Ol: true,
	atom.Table: true, atom.Pre: true, atom.Blockquote: true, atom.Section: true, atom.Article: true, atom.Header: true, atom.Footer: true, atom.Main: true, atom.Hr: true,
	atom.Div: false, atom.Li: false, atom.Tr: false, atom.Dt: false, atom.Dd: false, atom.Br: false, atom.Form: false, atom.Figure: false, atom.Figcaption: false,
}

// prefixes stand before the text of an element.
var prefixes = map[atom.Atom]string{
	atom.H1: "# ", atom.H2: "## ", atom.H3: "### ", atom.H4: "#### ", atom.H5: "##### ", atom.H6: "###### ", atom.Li: "- ", atom.Title: "# ",
}

// page reduces HTML to text: lines break as in a browser, headings and lists are Markdown,
// and links are [text](address). It reads the elements one by one, so neither nesting nor
// unclosed elements cost more than the page's bytes.
func page(r io.Reader, at *url.URL) (io.Reader, error) {
	z := html.NewTokenizer(r)
	w := &pageText{base: at}
	for {
		switch z.Next() {
		case html.ErrorToken:
			if err := z.Err(); err != io.EOF {
				return nil, err
			}
			w.unlink()
			return strings.NewReader(strings.TrimSpace(w.out.String()) + "\n"), nil
		case html.TextToken:
			w.text(string(z.Text()))
		case html.StartTagToken:
			w.start(z.Token(), false)
		case html.SelfClosingTagToken:
			w.start(z.Token(), true)
		case html.EndTagToken:
			w.end(z.Token().DataAtom)
		}
	}
}

// pageText is the text of a page so far.
type pageText struct {
	out  strings.Builder
	base *url.URL

	based  bool // the page set the base; only the first base counts
	linked int  // bytes of addresses, of which MaxFetched are shown: a short link may stand for a long one

	hidden atom.Atom // the excluded element that is open, if any
	depth  int       // the number of open elements of that kind
	pre    int       // of pre
	link   string    // the address of the link that is open
	opened int       // where its text begins

	breaks int    // newlines before the next text
	space  bool   // a space before it
	before string // its prefix
	col    bool   // the line has text
}

// start begins an element.
func (w *pageText) start(t html.Token, closed bool) {
	a := t.DataAtom
	if w.hidden != 0 {
		if a == w.hidden && !closed {
			w.depth++
		}
		return
	}
	if left[a] {
		if !closed {
			w.hidden, w.depth = a, 1
		}
		return
	}
	w.line(a)
	w.before += prefixes[a]
	switch a {
	case atom.Pre:
		w.pre++
	case atom.Td, atom.Th:
		if w.col {
			w.before = " | "
		}
	case atom.Base, atom.A, atom.Img:
		for _, v := range t.Attr {
			switch {
			case a == atom.Img && v.Key == "alt":
				w.text(v.Val)
			case a != atom.Img && v.Key == "href":
				w.refer(a, v.Val)
			}
		}
	}
}

// refer stores the address of a link, or the page's base address.
func (w *pageText) refer(a atom.Atom, href string) {
	if len(href) > maxLink {
		return
	}
	to, err := w.base.Parse(strings.TrimSpace(href))
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || strings.HasPrefix(href, "#") {
		return
	}
	if a == atom.Base {
		if !w.based {
			w.base, w.based = to, true
		}
		return
	}
	w.unlink()
	address := to.String()
	if w.linked += len(address); w.linked <= MaxFetched {
		w.link, w.opened = address, -1
	}
}

// end ends an element.
func (w *pageText) end(a atom.Atom) {
	if w.hidden != 0 {
		if a == w.hidden {
			if w.depth--; w.depth == 0 {
				w.hidden = 0
			}
		}
		return
	}
	if a == atom.A {
		w.unlink()
	}
	if a == atom.Pre {
		w.pre = max(w.pre-1, 0)
	}
	w.line(a)
}

// unlink ends a link that has a text.
func (w *pageText) unlink() {
	if w.link != "" && w.opened >= 0 {
		w.out.WriteString("](" + w.link + ")")
	}
	w.link = ""
}

// line breaks the line where an element begins or ends.
func (w *pageText) line(a atom.Atom) {
	apart, block := blocks[a]
	if !block {
		return
	}
	w.before = ""
	n := 1
	if apart {
		n = 2
	}
	w.breaks, w.space, w.col = max(w.breaks, n), false, false
}

// text adds a text, with white space as a browser shows it.
func (w *pageText) text(s string) {
	if w.hidden != 0 {
		return
	}
	if w.pre > 0 {
		w.put(s)
		return
	}
	begins := strings.IndexFunc(s, unicode.IsSpace) == 0
	words := strings.Fields(s)
	if len(words) == 0 {
		w.space = w.space || begins && w.col
		return
	}
	w.space = w.space || begins && w.col
	ends := strings.TrimRightFunc(s, unicode.IsSpace) != s
	w.put(strings.Join(words, " "))
	w.space = ends
}

// put writes a text after its pending line breaks and prefix.
func (w *pageText) put(s string) {
	if s == "" {
		return
	}
	if w.breaks > 0 && w.out.Len() > 0 {
		w.out.WriteString("\n\n"[:w.breaks])
	}
	if w.space && w.before == "" {
		w.out.WriteByte(' ')
	}
	w.out.WriteString(w.before)
	w.breaks, w.space, w.before, w.col = 0, false, "", true
	if w.link != "" && w.opened < 0 {
		w.out.WriteByte('[')
		w.opened = w.out.Len()
	}
	w.out.WriteString(s)
}
