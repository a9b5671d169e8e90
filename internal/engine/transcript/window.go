package transcript

import (
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// Window tracks the use of a model's context by an agent's requests.
type Window struct {
	Bytes  int   // of the last request whose tokens the server counted
	tokens int64 // counted by the server for it
	Cached int64 // read from its cache
	Tried  bool  // the session was compressed, and no answer has come since
	Off    bool  // the author's workflow leaves the session unchanged
}

// counted stores the server's counts for a request.
func (w *Window) counted(size int, used session.Usage) {
	w.Tried, w.Cached = false, used.CacheRead
	if size > 0 && used.Input > 0 {
		w.Bytes, w.tokens = size, used.Input/max(used.Calls, 1)
	}
}

// Estimate estimates the tokens of a request: from the server's counts for the last one,
// or else by rule of thumb.
func (w *Window) Estimate(size int) int64 {
	if w.Bytes == 0 {
		return llm.Estimate(size)
	}
	return int64(float64(size) / float64(w.Bytes) * float64(w.tokens))
}

// SizeOf estimates the bytes of the next request.
func (c *Call) SizeOf(s session.Session) int {
	const around = 60 // a message
	size, from := c.Size, c.Shown.n
	if last, _ := s.At(from - 1); size == 0 || from == 0 || last != c.Shown.last {
		size, from = len(c.Prompt)+len(c.Notes.Text), 0
		for _, t := range c.Tools {
			size += len(t.Name) + len(t.Description) + len(t.Schema) + around
		}
	}
	for _, m := range c.Answer.tail {
		size += len(m.Text) + around
	}
	for _, row := range s.Range(from, s.Len()) {
		size += len(row.Text()) + around
		for _, call := range row.Calls() {
			size += len(call.Name) + len(call.Args) + around
		}
	}
	return size
}

// Texts returns the texts of the next request.
func (c *Call) Texts(s session.Session) []string {
	all := []string{c.Prompt, c.Notes.Text}
	for _, t := range c.Tools {
		all = append(all, t.Name, t.Description, t.Schema)
	}
	for _, row := range s.Range(0, s.Len()) {
		all = append(all, row.Text())
		for _, call := range row.Calls() {
			all = append(all, call.Name, call.Args)
		}
	}
	return all
}
