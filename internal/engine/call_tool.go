package engine

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// CallTool is flow.CallTool.
func (p *place) CallTool(ctx context.Context, s session.Session, t tool.Tool, args string) (session.Session, tool.Result, error) {
	table, err := tool.NewTable(t)
	if err != nil {
		return s, tool.Result{}, err
	}
	o, err := openStep(ctx, p, journal.StepRequest{Kind: journal.StepTool, Name: t.Spec().Name}, s)
	if err != nil {
		return s, tool.Result{}, err
	}
	defer o.release()
	path := o.made.Path
	r := &round{sc: o.scope, ex: o.ex, ctx: ctx, made: o.made, at: path, table: table, base: o.s, s: o.s, sandboxErr: o.boxErr}
	r.calls = []*toolCall{{ToolCall: session.ToolCall{
		ID: "call_" + strings.ReplaceAll(string(path), ".", "_"), Name: t.Spec().Name, Args: args,
	}, path: path.Index(0)}}
	out, err := r.run()
	if err != nil {
		return s, tool.Result{}, err
	}
	row, ok := out.Last(session.ToolResult)
	if !ok {
		return s, tool.Result{}, errors.New("flow: the call left no row")
	}
	return out, tool.Result{Body: tool.JSON(row.Text()), IsError: row.Failed()}, nil
}

// resolvedBody returns the operator's resolution of a call that was cut off as its
// result.
func resolvedBody(v journal.Resolved) json.RawMessage {
	if json.Valid([]byte(v.Value)) {
		return json.RawMessage(v.Value)
	}
	text, err := canonical.Marshal(struct {
		OK       bool   `json:"ok"`
		Reason   string `json:"reason"`
		Resolved string `json:"resolved"`
	}{true, v.Reason, "a person confirmed that the call took effect; its output is lost"})
	if err != nil {
		return json.RawMessage(`{"ok":true}`)
	}
	return json.RawMessage(text)
}
