package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/web/problem"
	"github.com/rathcluster/rath/internal/web/turn"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// chatRequest is a request for a chat completion. Fields that are not here change nothing.
type chatRequest struct {
	Model    string `json:"model"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Stream        bool `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Metadata map[string]string `json:"metadata"`
	N        int               `json:"n"`
	refusedFields
}

// refusedFields are fields that ask for an answer of another kind than the door gives.
type refusedFields struct {
	Tools          json.RawMessage `json:"tools"`
	Functions      json.RawMessage `json:"functions"`
	ResponseFormat json.RawMessage `json:"response_format"`
	Audio          json.RawMessage `json:"audio"`
	Text           struct {
		Format json.RawMessage `json:"format"`
	} `json:"text"`
	Logprobs json.RawMessage `json:"logprobs"`
	Prompt   json.RawMessage `json:"prompt"`
}

// check returns an error for a field of those that has a value.
func (f *refusedFields) check() error {
	for _, field := range []struct {
		name   string
		value  json.RawMessage
		remedy string
	}{
		{"tools", f.Tools, "give the workflow its tools, or serve them with `client.Tools`, see docs/tools.md"},
		{"functions", f.Functions, "give the workflow its tools"},
		{"response_format", f.ResponseFormat, "let the workflow ask for the form, see flow.Ask"},
		{"text.format", f.Text.Format, "let the workflow ask for the form, see flow.Ask"},
		{"audio", f.Audio, "leave it out"},
		{"prompt", f.Prompt, "let the workflow have the prompt"},
	} {
		var form struct{ Type string }
		if set(field.value) && !(json.Unmarshal(field.value, &form) == nil && form.Type == "text") {
			return wrong(field.name, "this server cannot serve it", field.remedy)
		}
	}
	if set(f.Logprobs) && string(f.Logprobs) != "false" {
		return wrong("logprobs", "this server has none", "leave it out")
	}
	return nil
}

// chat serves chat completions.
func (d *Door) chat(ctx context.Context, c *call) (any, error) {
	var in chatRequest
	if err := decode(c.body, &in); err != nil {
		return nil, err
	}
	q, err := c.chatTurn(ctx, &in)
	if err != nil {
		return nil, err
	}
	b, err := d.begin(ctx, q)
	if err != nil {
		return nil, err
	}
	e := &chatEncoder{id: "chatcmpl-" + string(b.run), model: in.Model, created: time.Now().Unix()}
	if !in.Stream {
		o, err := d.follow(ctx, q, &b, nil)
		if err != nil {
			return nil, err
		}
		return e.completion(o, d.asksText(q, o)), failed(o)
	}
	begun := false
	o, err := d.follow(ctx, q, &b, func(text string) error {
		if !begun {
			begun = true
			c.stream()
			if text != "" {
				return c.event("", e.chunk(object{"role": roleAssistant, "content": text}, nil))
			}
			return c.event("", e.chunk(object{"role": roleAssistant, "content": ""}, nil))
		}
		if text == "" {
			return c.event()
		}
		return c.event("", e.chunk(object{"content": text}, nil))
	})
	if err == nil {
		err = failed(o)
	}
	if err != nil && !begun {
		return nil, err
	}
	if !begun {
		c.stream()
	}
	if err != nil {
		doc := problem.Of(err)
		_ = c.event("", errorOf(&doc))
		return nil, errStreamed
	}
	last := object{}
	if !begun {
		last["role"], last["content"] = roleAssistant, ""
	}
	if asks := d.asksText(q, o); asks != "" {
		last["content"] = asks
	}
	events := []any{"", e.chunk(last, finishOf(o))}
	if in.StreamOptions.IncludeUsage {
		usage := e.chunk(nil, nil)
		usage["choices"], usage["usage"] = []object{}, usageOf(o.result)
		events = append(events, "", usage)
	}
	_ = c.event(append(events, "", "[DONE]")...)
	return nil, errStreamed
}

// chatTurn returns the turn that a request asks for.
func (c *call) chatTurn(ctx context.Context, in *chatRequest) (*request, error) {
	if in.N > 1 {
		return nil, wrong("n", fmt.Sprintf("%d choices", in.N), "send one request for each")
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	if len(in.Messages) == 0 {
		return nil, wrong("messages", "it is empty", "send at least one message of the user")
	}
	q := &request{caller: c.caller, body: c.digestOf(), retry: c.retry()}
	for i, m := range in.Messages {
		role, err := roleOf(fmt.Sprintf("messages[%d].role", i), m.Role)
		if err != nil {
			return nil, err
		}
		text, err := textOf(fmt.Sprintf("messages[%d].content", i), m.Content)
		if err != nil {
			return nil, err
		}
		q.rows = append(q.rows, row{role, text})
	}
	var err error
	if q.tags, err = tagsOf(in.Metadata); err == nil {
		q.workflow, err = c.workflow(ctx, in.Model)
	}
	return q, err
}

// asksText returns the text of the questions at the end of a turn, after its text.
func (d *Door) asksText(q *request, o *outcome) string {
	text := ""
	for i := range o.asks {
		text = turn.Join(text, d.askText(q.caller, o.run, &o.asks[i]))
	}
	if text != "" && o.text != "" {
		return turn.Separator + text
	}
	return text
}

// failed returns the error of a run that did not succeed.
func failed(o *outcome) error {
	if o.result == nil {
		return nil
	}
	return o.result.Err()
}

// chatEncoder encodes a turn as a chat completion.
type chatEncoder struct {
	id, model string
	created   int64
}

// chunk returns a chunk of a stream. A delta of nil is a chunk without choices.
func (e *chatEncoder) chunk(delta object, finish any) object {
	return object{
		"id": e.id, "object": "chat.completion.chunk", "created": e.created, "model": e.model,
		"choices": []object{{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}},
	}
}

// completion returns a whole completion.
func (e *chatEncoder) completion(o *outcome, asks string) object {
	message := object{"role": roleAssistant, "content": o.text + asks, "refusal": nil}
	return object{
		"id": e.id, "object": "chat.completion", "created": e.created, "model": e.model, "usage": usageOf(o.result),
		"choices": []object{{"index": 0, "message": message, "logprobs": nil, "finish_reason": finishOf(o)}},
	}
}

// finishOf returns the reason why a turn ended.
func finishOf(o *outcome) string {
	if o.result != nil && (o.result.Finish == "length" || o.result.Finish == "content_filter") {
		return o.result.Finish
	}
	return "stop"
}

// usageOf returns the usage of a run, in the words of chat completions. A run that waits has
// none yet.
func usageOf(r *messages.Result) object {
	var u session.Usage
	if r != nil {
		u = r.Usage
	}
	return object{
		"prompt_tokens": u.Input, "completion_tokens": u.Output, "total_tokens": u.Tokens(),
		"prompt_tokens_details": object{"cached_tokens": u.CacheRead}, "completion_tokens_details": object{"reasoning_tokens": 0},
	}
}

// follow watches the run of a request. If another request has continued the session first,
// it begins again on a fork.
func (d *Door) follow(ctx context.Context, q *request, b **begun, each func(text string) error) (*outcome, error) {
	for range maxAlike {
		o, err := d.watch(ctx, q.caller, *b, each)
		if run.CodeOf(err) != run.CodeKeyReused {
			return o, err
		}
		if *b, err = d.begin(ctx, q); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("run %s: %w: requests with the same history compete; send it again", (*b).run, run.ErrBusy)
}
