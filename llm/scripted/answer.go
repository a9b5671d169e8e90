package scripted

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// answer is a reply with all details for one request.
type answer struct {
	*reply
	resp llm.Response
	err  *llm.Error // the call fails before the first piece
}

// answer fills in the open parts of the reply. It depends only on the request.
func (p *reply) answer(v *view) answer {
	a := answer{reply: p}
	text := p.Text
	if p.Echo {
		text += v.user
	}
	if p.Fault == "" && (p.Code != "" || p.Status != 0) {
		a.err = p.failure(text)
		return a
	}
	a.resp = llm.Response{Text: text, Reasoning: p.Reasoning, Finish: p.Finish, Usage: p.Usage, Model: v.r.Provider.Model}
	if a.resp.Model == "" {
		a.resp.Model = DefaultModel
	}
	if a.resp.Finish == "" {
		a.resp.Finish = llm.FinishStop
	}
	if len(p.Calls) > 0 {
		a.resp.Calls = append([]session.ToolCall(nil), p.Calls...)
		for i := range a.resp.Calls {
			if c := &a.resp.Calls[i]; c.ID == "" {
				// Unique in the transcript, the same on every attempt.
				c.ID = fmt.Sprintf("call_%s_%d", Digest(v.r.Messages)[:12], i)
			}
		}
		if a.resp.Finish == llm.FinishStop {
			a.resp.Finish = llm.FinishTools
		}
	}
	if a.resp.Usage == (session.Usage{}) {
		in, out := 0, len(text)+len(p.Reasoning)
		for i := range v.r.Messages {
			m := &v.r.Messages[i]
			in += len(m.Text)
			for _, c := range m.Calls {
				in += len(c.Name) + len(c.Args)
			}
		}
		for _, c := range p.Calls {
			out += len(c.Name) + len(c.Args)
		}
		a.resp.Usage = session.Usage{Input: llm.Estimate(in), Output: llm.Estimate(out)}
	}
	return a
}

// failure is the error of a reply with a code or a status.
func (p *reply) failure(text string) *llm.Error {
	e := &llm.Error{Code: p.Code, Status: p.Status, RetryAfter: p.RetryAfter, Message: text}
	if e.Code == "" {
		e.Code = llm.CodeForStatus(e.Status)
	}
	if e.Status == 0 {
		e.Status = statusOf(e.Code)
	}
	if e.Message == "" {
		e.Message = "the script says so"
	}
	return e
}

// statusOf is the status that real servers use for a code.
func statusOf(c llm.Code) int {
	switch c {
	case llm.CodeAuth, llm.CodeNoKey:
		return 401
	case llm.CodeQuota, llm.CodeRateLimited:
		return 429
	case llm.CodeModelNotFound, llm.CodeNoModel:
		return 404
	case llm.CodeTimeout, llm.CodeIdleTimeout:
		return 408
	case llm.CodeOverloaded:
		return 503
	case llm.CodeUnavailable, llm.CodeTruncated, llm.CodeMalformed:
		return 500
	default:
		return 400
	}
}

// pieces splits a response into deltas, word by word; the arguments of a call are split
// in two.
func pieces(r *llm.Response) []llm.Delta {
	var ds []llm.Delta
	for w := range strings.SplitAfterSeq(r.Reasoning, " ") {
		if w != "" {
			ds = append(ds, llm.Delta{Reasoning: w})
		}
	}
	for w := range strings.SplitAfterSeq(r.Text, " ") {
		if w != "" {
			ds = append(ds, llm.Delta{Text: w})
		}
	}
	for i, c := range r.Calls {
		ds = append(ds, llm.Delta{Call: &session.ToolCall{ID: c.ID, Name: c.Name}, Index: i})
		half := len(c.Args) / 2
		for half > 0 && !utf8.RuneStart(c.Args[half]) {
			half--
		}
		for _, args := range []string{c.Args[:half], c.Args[half:]} {
			if args != "" {
				ds = append(ds, llm.Delta{Call: &session.ToolCall{Args: args}, Index: i})
			}
		}
	}
	return ds
}

// Digest names a transcript by the parts that a model sees: the roles, texts, calls and
// call ids. It is the same in process and over HTTP. Two requests with one digest got
// the same answer.
func Digest(messages []llm.Message) string {
	h := sha256.New()
	enc := json.NewEncoder(h)
	for i := range messages {
		m := &messages[i]
		// Encoding never fails: the value contains only strings.
		_ = enc.Encode(llm.Message{Role: m.Role, Text: m.Text, Calls: m.Calls, CallID: m.CallID})
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
