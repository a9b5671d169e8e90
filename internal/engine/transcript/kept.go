package transcript

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/rathcluster/rath/internal/agents/guide"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// maxKept bounds the chunks that follow a summary, in bytes: they are stored again.
const maxKept = 128 << 10

// KeptFrom returns the index of the first of the newest chunks that have at most so many
// tokens, by estimate. No tool's result is parted from its call.
func KeptFrom(s session.Session, tokens int64) int {
	from, size, room := s.Len(), 0, maxKept
	for _, i := range Lasting(s, s.Len()) {
		c, _ := s.At(i)
		room -= len(session.ChunkEvent(c).Data)
	}
	for i := s.Len() - 1; i >= 0; i-- {
		c, _ := s.At(i)
		if size += len(session.ChunkEvent(c).Data); size > room || llm.Estimate(size) > tokens {
			break
		}
		if c.Kind() != session.ToolResult {
			from = i
		}
	}
	return from
}

// Lasting returns the indices of the chunks before one that no summary takes the place of:
// those of the system, what the workspace says for agents, each text of it once, and the
// newest that the user said, unless it comes later.
func Lasting(s session.Session, from int) (at []int) {
	said, summed := -1, -1
	guides := map[string]bool{}
	for i, c := range s.Chunks() {
		is, _ := guide.IsText(c.Text())
		switch {
		case c.Kind() != session.User:
			if c.Kind() == session.System && i < from {
				at = append(at, i)
			}
		case is:
			if i < from && !guides[c.Text()] {
				at = append(at, i)
			}
			guides[c.Text()] = true
		case c.Origin().Agent == "":
			said = i
		case c.Origin().Agent != journal.ByHook: // an agent's summary
			summed = i
		}
	}
	if said < 0 {
		said = summed
	}
	if said >= 0 && said < from {
		i, _ := slices.BinarySearch(at, said)
		at = slices.Insert(at, i, said)
	}
	return at
}

// Kept returns the rows of the session that goes on after a summary: those that last, the
// summary, and the chunks from an index on. What these used is counted already.
func Kept(s session.Session, from int, summary session.Event) (rows []session.Event) {
	again := func(c session.Chunk) {
		o := c.Origin()
		o.Usage = session.Usage{}
		rows = append(rows, session.ChunkEvent(c.Of(o)))
	}
	for _, i := range Lasting(s, from) {
		c, _ := s.At(i)
		again(c)
	}
	rows = append(rows, summary)
	for _, c := range s.Range(from, s.Len()) {
		again(c)
	}
	return rows
}

// Quote is the text of the chunks up to an index, in at most so many bytes: the longest
// are cut.
func Quote(s session.Session, to, most int) string {
	var parts []string
	for _, c := range s.Range(0, to) {
		head := string(c.Kind())
		if c.Kind() == session.ToolResult {
			head = "result of " + c.Name()
		}
		parts = append(parts, head+": "+c.Text()+named(c))
		for _, call := range c.Calls() {
			if c.Kind() == session.Assistant {
				parts = append(parts, "assistant calls "+call.Name+" "+call.Args)
			}
		}
	}
	limit := longest(parts, most)
	var b strings.Builder
	b.WriteString("A conversation, quoted from its beginning:\n")
	for _, p := range parts {
		b.WriteByte('\n')
		if len(p) > limit {
			b.WriteString(excerpt.Clip(p, limit/2) + fmt.Sprintf(" [%d bytes left out] ", len(p)-limit))
			p = strings.ToValidUTF8(p[len(p)-limit/2:], "")
		}
		b.WriteString(p)
	}
	return b.String()
}

// named are the images of a row, in words.
func named(c session.Chunk) (text string) {
	for _, img := range c.Images() {
		text += "\n[image: " + img.String() + "]"
	}
	return text
}

// OmittedImages names the newest images of the rows that a summary takes the place of, so that a
// reader finds them; where it keeps some rows, of those before.
func OmittedImages(s session.Session, keep int64) string {
	var all []string
	to := s.Len()
	if keep > 0 {
		to = KeptFrom(s, keep)
	}
	last := Lasting(s, to)
	for i, c := range s.Range(0, to) {
		if _, stays := slices.BinarySearch(last, i); keep > 0 && stays {
			continue
		}
		if text := named(c); text != "" {
			all = append(all, text)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "\n" + strings.Join(all[max(len(all)-MaxImages, 0):], "")
}

// longest returns the length to which texts have to be cut so that they have at most so
// many bytes.
func longest(parts []string, most int) int {
	const overhead = 40
	fits := func(n int) bool {
		sum := 0
		for _, p := range parts {
			sum += min(len(p), n) + overhead
		}
		return sum <= most
	}
	return sort.Search(most, func(i int) bool { return !fits(i + 1) })
}

// Size is how many bytes the texts of a session have.
func Size(s session.Session) (size int) {
	for _, c := range s.Chunks() {
		size += len(c.Text())
		for _, call := range c.Calls() {
			size += len(call.Args)
		}
	}
	return size
}
