package lineage

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/session"
)

// TreeOptions configure [Graph.Tree]; nil means the defaults.
type TreeOptions struct {
	Width int  // columns; 0 means 80, and less than 40 means 40
	All   bool // every record has a line
	// Expand shows every session. Without it only some are shown if many were opened
	// from one, as in a fan-out.
	Expand bool
	// MaxSessions is the maximum number of sessions; 0 means 200.
	MaxSessions int
}

const (
	defaultWidth    = 80
	defaultSessions = 200
	// foldTo is the number of sessions shown if more than foldFrom were opened from
	// one.
	foldTo     = 6
	foldFrom   = 10
	actorWidth = 11
)

// Tree returns the timeline of a tree as text: one line per step, branches indented
// below the session that they were forked from, and the outcome of each branch.
//
//	s1  1 researcher  reads issue.md, recalls 0 notes
//	    3 planner     answers "2 steps"
//	    s2  fork of s1 at 4
//	      5 coder       edits slug.sh
//	      8 REJECTED    "breaks empty input"
func (g *Graph) Tree(root session.Key, o *TreeOptions) (string, error) {
	opt := TreeOptions{}
	if o != nil {
		opt = *o
	}
	opt.Width, opt.MaxSessions = cmp.Or(opt.Width, defaultWidth), cmp.Or(opt.MaxSessions, defaultSessions)
	g.mu.Lock()
	defer g.mu.Unlock()
	fold := foldTo
	if opt.Expand {
		fold = 0
	}
	timelines, left, err := g.index.timelines(root, opt.All, opt.MaxSessions, fold)
	if err != nil {
		return "", err
	}
	w := treeWriter{width: max(opt.Width, 40), timelines: timelines, labels: map[session.ID]string{}}
	for _, c := range timelines {
		w.labels[c.info.Key.ID] = c.label
		w.digits = max(w.digits, len(strconv.FormatUint(uint64(c.info.Version), 10)))
	}
	w.write()
	if left > 0 {
		fmt.Fprintf(&w.b, "... %s more\n", excerpt.Counted(left, "session"))
	}
	return w.b.String(), nil
}

type treeWriter struct {
	b         strings.Builder
	width     int
	digits    int
	timelines []timeline
	labels    map[session.ID]string
}

// write writes the lines of a session up to a fork, the branch, and then the rest. It has
// its own stack, because branches may be nested to any depth.
func (w *treeWriter) write() {
	type cursor struct {
		session, line, kid int
		folded             bool
	}
	w.begin(0)
	stack := []cursor{{}}
	for len(stack) > 0 {
		at := &stack[len(stack)-1]
		c := &w.timelines[at.session]
		if at.kid < len(c.kids) {
			kid := &w.timelines[c.kids[at.kid]]
			if at.line < len(c.lines) && c.lines[at.line].before(kid.fork, kid.info.Opened) {
				w.line(c, at.line)
				at.line++
				continue
			}
			at.kid++
			next := c.kids[at.kid-1]
			w.begin(next)
			stack = append(stack, cursor{session: next})
			continue
		}
		if c.folded != "" && !at.folded {
			at.folded = true
			w.row(strings.Repeat(" ", column(c))+c.folded, "")
			continue
		}
		if at.line < len(c.lines) {
			w.line(c, at.line)
			at.line++
			continue
		}
		if word, text := c.verdict(w.name); word != "" && !c.saysEnd() {
			w.put(column(c), c.info.Version, word, text)
		}
		stack = stack[:len(stack)-1]
	}
}

func (w *treeWriter) name(id session.ID) string { return cmp.Or(w.labels[id], Short(id)) }

// column returns the column of the lines of a session. The indentation is limited, to
// leave room for the text.
func column(c *timeline) int { return 2*min(c.depth, maxIndent) + 4 }

const maxIndent = 12

// begin writes the head of a session. The head of a root shares its first line.
func (w *treeWriter) begin(i int) {
	c := &w.timelines[i]
	if c.depth == 0 && c.title == "" && len(c.label) <= 2 && len(c.lines) > 0 {
		return
	}
	head := c.label
	if c.depth > 0 { // in the column of its parent's lines
		head = strings.Repeat(" ", column(c)-2) + head
	}
	if c.title != "" {
		head += "  " + c.title
		if rate := HitRate(c.info.Usage); rate != "" {
			head += ", " + rate + " of input cached"
		}
	}
	w.row(head, w.id(c))
}

// id returns the short id of a session, "" if its label is its id.
func (w *treeWriter) id(c *timeline) string {
	if string(c.info.Key.ID) == c.label {
		return ""
	}
	return Short(c.info.Key.ID)
}

func (w *treeWriter) line(c *timeline, i int) {
	l := &c.lines[i]
	if i == 0 && c.depth == 0 && c.title == "" && len(c.label) <= 2 {
		w.row(fmt.Sprintf("%-4s%s", c.label, w.cells(l.Version, l.Actor, l.Text)), w.id(c))
		return
	}
	w.put(column(c), l.Version, l.Actor, l.Text)
}

func (w *treeWriter) put(indent int, v session.Version, actor, text string) {
	w.row(strings.Repeat(" ", indent)+w.cells(v, actor, text), "")
}

func (w *treeWriter) cells(v session.Version, actor, text string) string {
	actor = excerpt.Cut(actor, 24)
	pad := strings.Repeat(" ", max(actorWidth-utf8.RuneCountInString(actor), 0))
	return fmt.Sprintf("%*d %s%s %s", w.digits, v, actor, pad, text)
}

// minText is the minimum number of columns of a line for its text.
const minText = 12

// row writes one line, with right at its end.
func (w *treeWriter) row(text, right string) {
	room := w.width
	if right != "" {
		right = excerpt.Cut(right, w.width-minText-2) // an id chosen by a user may be longer than the line
		room -= utf8.RuneCountInString(right) + 2
	}
	text = strings.TrimRight(short(text, room), " ")
	w.b.WriteString(text)
	if right != "" {
		w.b.WriteString(strings.Repeat(" ", w.width-utf8.RuneCountInString(right)-utf8.RuneCountInString(text)))
		w.b.WriteString(right)
	}
	w.b.WriteByte('\n')
}
