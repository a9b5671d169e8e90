package transcript

import (
	"bytes"
	"crypto/sha256"
	"encoding"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strconv"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/agents/guide"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// Rendering is the rendered beginning of an agent's requests: its prompt and the
// committed chunks of the session. The next request extends it, so that a turn of a long
// session renders only the new chunks.
type Rendering struct {
	msgs   []llm.Message   // requests share it, so it only grows
	seen   []int           // the messages that have images
	sum    hash.Hash       // of the messages as JSON, from the bracket that opens the list
	size   int             // bytes written to sum
	open   map[string]bool // calls of tools without a result
	noted  bool            // the recalled notes are among msgs
	n      int             // chunks that are rendered
	guide  []string        // the workspace's instructions among msgs
	common int             // messages among msgs that the session's parent has
	last   session.Chunk   // the n-th
}

// Render renders a session for a call as messages, and returns them with the digest and
// the size of the whole request as JSON. It renders the chunks in their order, so that
// branches of one session share all leading bytes.
func (t *Rendering) Render(c *Call, s session.Session, p *llm.Provider) ([]llm.Message, blob.Digest, int, error) {
	c.inherited = s.Len()
	for i := range s.SinceFork() {
		c.inherited = i
		break
	}
	if err := t.extend(c, s.Committed()); err != nil {
		return nil, blob.Digest{}, 0, err
	}
	all, err := t, error(nil)
	if pending := s.Len() > t.n; pending || c.Ask != "" || len(c.Answer.tail) > 0 || c.Notes.Text != "" && !t.noted {
		if all, err = t.fork(); err != nil { // all but committed chunks is rendered for this call only
			return nil, blob.Digest{}, 0, err
		}
		for i, chunk := range s.Range(t.n, s.Len()) {
			if err := all.chunk(c, i, chunk); err != nil {
				return nil, blob.Digest{}, 0, err
			}
		}
		if err := all.note(c, max(all.n, c.Notes.After)); err != nil {
			return nil, blob.Digest{}, 0, err
		}
		if c.Ask != "" {
			if err := all.add(llm.Message{Role: llm.User, Text: c.Ask}); err != nil {
				return nil, blob.Digest{}, 0, err
			}
		}
		for _, m := range c.Answer.tail {
			if err := all.add(m); err != nil {
				return nil, blob.Digest{}, 0, err
			}
		}
	}
	c.Images = slices.Clip(all.seen)
	of := []any{c.Tools, p}
	if c.Choice != "" {
		of = append(of, c.Choice)
	}
	tail, err := json.Marshal(of)
	if err != nil {
		return nil, blob.Digest{}, 0, err
	}
	tail[0] = ','
	c.Shared = all.common
	sum, err := cloneSum(all.sum)
	if err != nil {
		return nil, blob.Digest{}, 0, err
	}
	sum.Write([]byte("]"))
	sum.Write(tail)
	return slices.Clip(all.msgs), blob.Digest(sum.Sum(nil)), all.size + 1 + len(tail), nil
}

// extend renders the new chunks of a committed session. It starts again if the session
// does not extend the rendered chunks.
func (t *Rendering) extend(c *Call, s session.Session) error {
	if last, _ := s.At(t.n - 1); t.sum == nil || t.n > 0 && last != t.last {
		*t = Rendering{sum: sha256.New(), msgs: make([]llm.Message, 0, s.Len()+1)}
		c.ThoughtsFrom = 0
		t.write([]byte("[["))
		if c.Prompt != "" {
			if err := t.add(llm.Message{Role: llm.System, Text: c.Prompt}); err != nil {
				return err
			}
		}
	}
	for i, chunk := range s.Range(t.n, s.Len()) {
		if err := t.chunk(c, i, chunk); err != nil {
			return err
		}
	}
	return nil
}

// fork returns a copy that can grow independently.
func (t *Rendering) fork() (*Rendering, error) {
	cp := *t
	cp.msgs, cp.seen, cp.open, cp.guide = slices.Clip(t.msgs), slices.Clip(t.seen), maps.Clone(t.open), slices.Clip(t.guide)
	var err error
	cp.sum, err = cloneSum(t.sum)
	return &cp, err
}

// cloneSum returns a copy of a SHA-256 in progress.
func cloneSum(h hash.Hash) (hash.Hash, error) {
	state, err := h.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return nil, err
	}
	cp := sha256.New()
	return cp, cp.(encoding.BinaryUnmarshaler).UnmarshalBinary(state)
}

func (t *Rendering) write(b []byte) {
	t.sum.Write(b)
	t.size += len(b)
}

func (t *Rendering) add(m llm.Message) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(t.msgs) > 0 {
		t.write([]byte(","))
	}
	t.write(data)
	if len(m.Images) > 0 {
		t.size += len(m.Images) * imageSize
		t.seen = append(t.seen, len(t.msgs))
	}
	t.msgs = append(t.msgs, m)
	return nil
}

// note adds the recalled notes if their place is before the chunk at index i.
func (t *Rendering) note(c *Call, i int) error {
	if c.Notes.Text == "" || t.noted || i < c.Notes.After {
		return nil
	}
	t.noted = true
	return t.add(llm.Message{Role: llm.User, Text: c.Notes.Text})
}

// chunk adds the chunk at index i, the next one.
func (t *Rendering) chunk(c *Call, i int, chunk session.Chunk) error {
	if err := t.note(c, i); err != nil {
		return err
	}
	t.n, t.last = i+1, chunk
	m := llm.Message{Role: llm.User, Text: chunk.Text(), Images: imagesOf(chunk)}
	switch chunk.Kind() {
	case session.User:
		if is, _ := guide.IsText(m.Text); !is {
			break
		}
		if slices.Contains(t.guide, m.Text) {
			return nil // of another branch that added it as well
		}
		t.guide = append(t.guide, m.Text)
	case session.System:
		m.Role = llm.System
	case session.Assistant:
		m.Role, m.Calls, m.Opaque = llm.Assistant, CallsOf(chunk), chunk.Opaque()
		for _, call := range m.Calls {
			if t.open == nil {
				t.open = map[string]bool{}
			}
			t.open[call.ID] = true
		}
	case session.ToolResult:
		m.Text = ToolText(chunk)
		if !t.open[chunk.CallID()] { // no model made the call: the workflow called the tool
			head := "Result of "
			if chunk.Failed() {
				head = "Error of "
			}
			m.Text = head + chunk.Name() + ": " + m.Text
			break
		}
		delete(t.open, chunk.CallID())
		m.Role, m.CallID, m.Name, m.Failed = llm.Tool, chunk.CallID(), chunk.Name(), chunk.Failed()
	}
	err := t.add(m)
	if i < c.inherited {
		t.common = len(t.msgs)
	}
	return err
}

// maxShownArgs bounds changed arguments as shown to a model, in bytes.
const maxShownArgs = 4 << 10

// ToolText returns the result of a tool call for a model: the row's text. If the approver
// or a hook changed the arguments, a line before it has the new ones, because the model's
// own call keeps its original arguments.
func ToolText(c session.Chunk) string {
	args := c.Args()
	if args == "" {
		return c.Text()
	}
	args = Compact(args)
	shown := excerpt.Clip(args, maxShownArgs)
	if len(shown) < len(args) {
		shown += fmt.Sprintf("… (%d bytes in all)", len(args))
	}
	return "The arguments of this call were changed to " + shown + "\n" + c.Text()
}

// Compact returns JSON without the space between its parts, on one line.
func Compact(text string) string {
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		return strconv.Quote(text) // as a model may write it
	}
	return b.String()
}

// MaxImages bounds the images of a request.
const MaxImages = 16

// imageSize is the size of an image in the byte count of a request from which its tokens
// are estimated: about the count of servers, at four bytes a token.
const imageSize = 6 << 10

// imagesOf returns a row's images for a message, without their bytes.
func imagesOf(c session.Chunk) (all []llm.Image) {
	for _, i := range c.Images() {
		all = append(all, llm.Image{Type: i.Type, Size: i.Size, Digest: i.Digest.String()})
	}
	return all
}
