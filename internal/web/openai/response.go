package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/internal/web/problem"
	"github.com/rathcluster/rath/internal/web/turn"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The prefixes of the protocol's ids: a response is a run, from the question on that its
// request answered; an approval is a question of a run.
const (
	idResponse, idApproval, idMessage = "resp_", "mcpr_", "msg_"
	idConversation                    = "conv_"
)

// part names a run from a version of its session on, zero for its beginning, or a question
// there.
type part struct {
	run   run.ID
	after session.Version
	step  run.Path
}

func (p part) String() string {
	switch {
	case p.step != "":
		return fmt.Sprintf("%s.%d.%s", p.run, p.after, p.step)
	case p.after > 0:
		return fmt.Sprintf("%s.%d", p.run, p.after)
	}
	return string(p.run)
}

// partOf reads an id of the protocol.
func partOf(prefix, id string) (part, error) {
	name, rest, after := strings.Cut(strings.TrimPrefix(id, prefix), ".")
	version, step, _ := strings.Cut(rest, ".")
	v, err := strconv.ParseUint(version, 10, 64)
	if !strings.HasPrefix(id, prefix) || session.ValidID("run", name) != nil || after && err != nil {
		return part{}, fmt.Errorf("%q: %w: it is no id of that kind, which begins with %s", excerpt.Start(id, 80), session.ErrNotFound, prefix)
	}
	return part{run.ID(name), session.Version(v), run.Path(step)}, nil
}

// answer is a response as the protocol shows it.
type answer struct {
	part
	model, conversation string
	previous            string
	created             int64
	background          bool
	status              string
	text                string
	approvals           []object
	result              *messages.Result
}

// The states of a response.
const (
	statusQueued     = "queued"
	statusWorks      = "in_progress"
	statusCompleted  = "completed"
	statusFailed     = "failed"
	statusCancelled  = "cancelled"
	statusIncomplete = "incomplete"
)

// ended sets the state of a response at the end of its turn.
func (a *answer) ended(o *outcome) {
	a.text, a.result, a.status = o.text, o.result, statusCompleted
	switch {
	case o.result == nil || o.result.State == run.Succeeded:
		if finishOf(o) != "stop" {
			a.status = statusIncomplete
		}
	case o.result.State == run.Cancelled:
		a.status = statusCancelled
	default:
		a.status = statusFailed
	}
}

// object returns the response.
func (a *answer) object() object {
	output := []object{}
	if a.text != "" {
		output = append(output, a.message("completed"))
	}
	out := object{
		"id": idResponse + a.String(), "object": "response", "created_at": a.created, "status": a.status, "model": a.model, "background": a.background,
		"output": append(output, a.approvals...), "error": nil, "incomplete_details": nil, "previous_response_id": nil, "instructions": nil, "metadata": object{},
		"parallel_tool_calls": true, "tool_choice": "auto", "tools": []object{}, "temperature": nil, "top_p": nil, "truncation": "disabled", "store": true,
		"text": object{"format": object{"type": "text"}}, "usage": nil,
	}
	if a.previous != "" {
		out["previous_response_id"] = a.previous
	}
	if a.conversation != "" {
		out["conversation"] = object{"id": a.conversation}
	}
	if a.status == statusIncomplete {
		reason := "max_output_tokens"
		if a.result.Finish != "length" {
			reason = "content_filter"
		}
		out["incomplete_details"] = object{"reason": reason}
	}
	if r := a.result; r != nil {
		u := r.Usage
		out["usage"] = object{
			"input_tokens": u.Input, "output_tokens": u.Output, "total_tokens": u.Tokens(),
			"input_tokens_details": object{"cached_tokens": u.CacheRead}, "output_tokens_details": object{"reasoning_tokens": 0},
		}
		if err := r.Err(); err != nil {
			out["error"] = object{"code": "server_error", "message": messages.Text(err)}
		}
	}
	return out
}

// message returns the item of the text.
func (a *answer) message(status string) object {
	content := []object{}
	if a.text != "" {
		content = append(content, textPart(a.text))
	}
	return object{"id": idMessage + a.String(), "type": "message", "status": status, "role": roleAssistant, "content": content}
}

func textPart(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []object{}, "logprobs": []object{}}
}

// questions sets the items and the text of the questions that end a turn.
func (d *Door) questions(ctx context.Context, c *access.Caller, a *answer, o *outcome) (text string, err error) {
	asks := o.asks
	var open []client.Question
	for i := range asks {
		w := &asks[i]
		if w.Kind != run.WaitApproval {
			text = turn.Join(text, d.askText(c, a.run, w))
			continue
		}
		if open == nil {
			info, err := c.Client.Runs.Get(ctx, a.run)
			if err != nil {
				return "", err
			}
			open = client.QuestionsOf(&info)
		}
		item := object{"id": idApproval + part{a.run, o.version, w.Step}.String(), "type": "mcp_approval_request", "server_label": "rath", "name": w.Name, "arguments": "{}"}
		args := map[string]string{"question": w.Title}
		for _, q := range open {
			if q.Step != w.Step {
				continue
			}
			call, err := c.Client.Questions.Call(ctx, q)
			if err == nil {
				item["name"], item["arguments"] = call.Name, call.Args
				args = nil
				break
			}
			if !errors.Is(err, session.ErrNotFound) {
				return "", err
			}
			if args["detail"], _, err = c.Client.Questions.Detail(ctx, q); err != nil {
				return "", err
			}
		}
		if args != nil {
			encoded, err := json.Marshal(args)
			if err != nil {
				return "", err
			}
			item["arguments"] = string(encoded)
		}
		a.approvals = append(a.approvals, item)
	}
	return text, nil
}

// showResponse answers with a response.
func (d *Door) showResponse(ctx context.Context, c *call) (any, error) {
	a, err := d.responseOf(ctx, c)
	if err != nil {
		return nil, err
	}
	return a.object(), nil
}

// responseOf reads the response of the address.
func (d *Door) responseOf(ctx context.Context, c *call) (*answer, error) {
	p, err := c.part(ctx)
	if err != nil {
		return nil, err
	}
	a := &answer{part: p, status: statusQueued}
	info, err := c.caller.Client.Runs.Get(ctx, p.run)
	if errors.Is(err, run.ErrUnknownRun) && !c.caller.Narrow() {
		if waits, notKnown := c.caller.Client.Runs.Waits(ctx, p.run); waits && notKnown == nil {
			return a, nil
		}
	}
	if err != nil {
		return nil, err
	}
	a.model, a.created = info.Workflow, info.Submitted/1000
	h := &head{run: p.run, session: info.Session, info: info, after: p.after, asks: turn.Asked(info.Waits)}
	result, err := c.caller.Client.Runs.Result(ctx, p.run)
	switch {
	case err == nil:
		a.ended(&outcome{result: &result})
		if h.asks, h.session, h.version = nil, result.Session, result.Version; h.version == 0 {
			return a, nil
		}
	case !errors.Is(err, run.ErrState):
		return nil, err
	case info.State == run.Queued:
		return a, nil
	case info.State == run.Waiting && len(h.asks) > 0, info.State == run.NeedsReview:
		a.status = statusCompleted
	default:
		a.status = statusWorks
	}
	if a.text, err = h.read(ctx, c.caller); err != nil {
		return nil, err
	}
	asks, err := d.questions(ctx, c.caller, a, &outcome{asks: h.asks, version: h.now})
	a.text = turn.Join(a.text, asks)
	return a, err
}

// part returns the run of the address, which the caller sees.
func (c *call) part(ctx context.Context) (part, error) {
	p, err := partOf(idResponse, c.r.PathValue("response"))
	if err == nil {
		err = c.caller.Sees(ctx, p.run)
	}
	return p, err
}

// cancelWithin is how long the answer to a cancel waits for the end of the run.
const cancelWithin = 5 * time.Second

// cancelResponse cancels the run of a response.
func (d *Door) cancelResponse(ctx context.Context, c *call) (any, error) {
	p, err := c.part(ctx)
	if err == nil {
		err = c.caller.May(messages.VerbCancel)
	}
	if err == nil {
		err = c.caller.Client.Runs.Cancel(ctx, p.run, messages.Control{Submitted: true})
	}
	if err != nil && !errors.Is(err, run.ErrState) { // it has ended
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, cancelWithin)
	defer cancel()
	_, _ = c.caller.Client.Wait(waiting, p.run) // the answer shows whether it has ended
	return d.showResponse(ctx, c)
}

// listInput answers with the input of a response: the rows of its run before the first answer.
func (d *Door) listInput(ctx context.Context, c *call) (any, error) {
	p, err := c.part(ctx)
	if err != nil {
		return nil, err
	}
	info, err := c.caller.Client.Runs.Get(ctx, p.run)
	if err != nil {
		return nil, err
	}
	if info.Session == "" {
		return nil, &problem.Error{Code: run.CodeState, Text: "the response has not begun", Remedy: "ask again later"}
	}
	rows, err := (&head{run: p.run, session: info.Session, info: info}).rows(ctx, c.caller)
	if err != nil {
		return nil, err
	}
	items := []object{}
	for i := range rows {
		if rows[i].Kind == session.Assistant {
			break
		}
		items = append(items, itemsOf(&rows[i])...)
	}
	return listed(c.r, items)
}

// listed returns a page of items, which are in their order, as the query of a request asks.
func listed(r *http.Request, items []object) (object, error) {
	q := r.URL.Query()
	limit := 20
	if text := q.Get("limit"); text != "" {
		if _, err := fmt.Sscan(text, &limit); err != nil || limit < 1 || limit > 100 {
			return nil, wrong("limit", fmt.Sprintf("%q is not of 1 to 100", excerpt.Start(text, 20)), "send a whole number")
		}
	}
	page := []object{}
	behind := q.Get("after") == ""
	for i := range items {
		it := items[i]
		if q.Get("order") != "asc" {
			it = items[len(items)-1-i]
		}
		if behind {
			page = append(page, it)
		}
		behind = behind || it["id"] == q.Get("after")
	}
	if !behind {
		return nil, wrong("after", "there is no such item", "send the last_id of the page before")
	}
	more := len(page) > limit
	page = page[:min(limit, len(page))]
	out := object{"object": "list", "data": page, "has_more": more, "first_id": nil, "last_id": nil}
	if len(page) > 0 {
		out["first_id"], out["last_id"] = page[0]["id"], page[len(page)-1]["id"]
	}
	return out, nil
}
