package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// createConversation answers with the name of a session, which the first response begins.
func createConversation(_ context.Context, c *call) (any, error) {
	var in struct{ Items, Metadata json.RawMessage }
	if len(c.body) > 0 {
		if err := decode(c.body, &in); err != nil {
			return nil, err
		}
	}
	for name, value := range map[string]json.RawMessage{"items": in.Items, "metadata": in.Metadata} {
		if set(value) {
			return nil, wrong(name, "a new conversation cannot have them here", "send the items with the first response, and metadata with each")
		}
	}
	now := time.Now().Unix()
	return conversation(idConversation+strconv.FormatInt(now, 36)+"-"+string(client.NewID()), now), nil
}

func conversation(id string, created int64) object {
	return object{"id": id, "object": "conversation", "created_at": created, "metadata": object{}}
}

// createdAt returns the time of the creation of a conversation by its id; ok is false for a
// session that this door did not name.
func createdAt(id string) (at int64, ok bool) {
	text, random, cut := strings.Cut(strings.TrimPrefix(id, idConversation), "-")
	at, err := strconv.ParseInt(text, 36, 64)
	return at, strings.HasPrefix(id, idConversation) && cut && err == nil && len(random) == len(client.NewID())
}

// showConversation answers with a conversation.
func showConversation(ctx context.Context, c *call) (any, error) {
	id := c.r.PathValue("conversation")
	s, err := c.session(ctx, id)
	if err != nil {
		return nil, err
	}
	at, _ := createdAt(id)
	if at == 0 && len(s.Chunks) > 0 {
		at = s.Chunks[0].Time / 1000
	}
	return conversation(id, at), nil
}

// maxItems is the number of rows of a session that a list is made of.
const maxItems = 10_000

// listItems answers with the rows of a session as items.
func listItems(ctx context.Context, c *call) (any, error) {
	s, err := c.session(ctx, c.r.PathValue("conversation"))
	if err != nil {
		return nil, err
	}
	if s.Total > maxItems {
		return nil, fmt.Errorf("conversation %s has %d rows: %w; read it with GET /api/v1/sessions/%s", s.Session, s.Total, session.ErrTooLarge, s.Session)
	}
	items := []object{}
	for s.Session != "" {
		for i := range s.Chunks {
			items = append(items, itemsOf(&s.Chunks[i])...)
		}
		if s.Next == 0 {
			break
		}
		if s, err = page(ctx, c.caller, fork(s.Session, s.Version), int(min(s.Next, math.MaxInt32)), tailRows); err != nil {
			return nil, err
		}
	}
	return listed(c.r, items)
}

// session reads the first rows of a conversation's session. A conversation without a response
// has none.
func (c *call) session(ctx context.Context, id string) (s messages.Session, err error) {
	if err := session.ValidID("session", id); err != nil {
		return s, wrong("conversation", messages.Text(err), "send the id of a conversation or of a session")
	}
	s, err = page(ctx, c.caller, id, 0, tailRows)
	if _, ours := createdAt(id); ours && errors.Is(err, session.ErrNotFound) {
		return s, nil
	}
	if err != nil || !c.caller.Narrow() {
		return s, err
	}
	runs, err := c.caller.Client.Runs.List(ctx, &client.RunsOptions{By: c.caller.User, Where: "under=" + string(s.Session)})
	for i := range runs {
		if own, err := c.caller.Owns(ctx, &runs[i]); own || err != nil {
			return s, err
		}
	}
	if err == nil {
		err = fmt.Errorf("session %s: %w", id, session.ErrNotFound)
	}
	return messages.Session{}, err
}

// itemsOf returns the items of a row.
func itemsOf(r *messages.Chunk) (items []object) {
	id := idMessage + strconv.Itoa(r.Index)
	text := func(kind string) object {
		return object{"id": id, "type": "message", "status": "completed", "role": string(r.Kind), "content": []object{{"type": kind, "text": r.Text}}}
	}
	switch r.Kind {
	case session.Assistant:
		if r.Text != "" {
			m := text("")
			m["content"] = []object{textPart(r.Text)}
			items = append(items, m)
		}
		for n, call := range r.Calls {
			items = append(items, object{"id": fmt.Sprintf("fc_%d_%d", r.Index, n), "type": "function_call", "status": "completed", "call_id": call.ID, "name": call.Name, "arguments": call.Args})
		}
	case session.ToolResult:
		items = append(items, object{"id": fmt.Sprintf("fco_%d", r.Index), "type": "function_call_output", "status": "completed", "call_id": r.CallID, "output": r.Text})
	default:
		items = append(items, text("input_text"))
	}
	return items
}
