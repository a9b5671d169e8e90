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

// maxKept bounds the chunks after a summary, in bytes: they are stored again.
const maxKept = 128 << 10

// KeptFrom returns the index of the first of the newest chunks that have at most tokens
// tokens, by estimate. It does not separate a tool's result from its call.
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

// Lasting returns the indices of the chunks before from that no summary replaces: system
// chunks, each text of the workspace's instructions once, and the user's newest chunk,
// unless it comes later.
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

// Kept returns the rows of the session after a summary: the lasting chunks, the summary,
// and the chunks from an index on. Their usage is counted already and is cleared.
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

// Quote returns the text of the chunks up to an index, in at most most bytes: the longest
// texts are cut.
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

// named returns the images of a row as text.
func named(c session.Chunk) (text string) {
	for _, img := range c.Images() {
		text += "\n[image: " + img.String() + "]"
	}
	return text
}

// OmittedImages names the newest images of the rows that a summary replaces, so that a
// reader can find them. If some rows are kept, it names images of earlier rows only.
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

// longest returns the length to which texts must be cut so that they have at most most
// bytes.
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

// Size returns the bytes of the texts of a session.
func Size(s session.Session) (size int) {
	for _, c := range s.Chunks() {
		size += len(c.Text())
		for _, call := range c.Calls() {
			size += len(call.Args)
		}
	}
	return size
}
