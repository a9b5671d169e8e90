package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestToolCutOff loses the connection of the caller of a tool once the program
// that has it was asked. Whatever its effect, the call is not made again within
// the attempt: nobody would know that it was made twice.
func TestToolCutOff(t *testing.T) {
	for _, effect := range []tool.Effect{tool.NonIdempotent, tool.Idempotent, tool.ReadOnly} {
		t.Run(effect.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := natstest.Start(t, nil)
				program := dial(t, nodeOptions(srv))
				w := &wire{}
				o := nodeOptions(srv)
				o.Dialer = w.through(o.Dialer)
				caller := dial(t, o)
				var calls atomic.Int64
				s, err := program.ServeTool(t.Context(), session.DefaultTenant, "count", func(context.Context, messages.ToolCall) messages.ToolAnswer {
					calls.Add(1)
					return messages.ToolAnswer{Body: json.RawMessage(`"counted"`)}
				})
				if err != nil {
					t.Fatal(err)
				}
				v := messages.Tool{Name: "count", Effect: effect.String()}
				hook, fired := once("counted", drop)
				w.set(hook, nil)
				_, err = caller.ToolOf(session.DefaultTenant, v).Call(t.Context(), tool.Call{ID: "r1/0", Attempt: 1, Args: json.RawMessage(`{}`)})
				if !errors.Is(err, session.ErrUnavailable) || !strings.Contains(err.Error(), "count") {
					t.Errorf("the call ended with %v", err)
				}
				if !fired() {
					t.Error("the connection was not cut")
				}
				if n := calls.Load(); n != 1 {
					t.Errorf("the tool was called %d times in one attempt", n)
				}
				w.set(nil, nil)
				if err := s.Stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
