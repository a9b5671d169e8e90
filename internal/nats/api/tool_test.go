package api

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestToolCutOff loses the connection of the caller of a tool once the program
// that has it was asked. With any effect, the call is not made again within
// the attempt: it would be unknown that it was made twice.
func TestToolCutOff(t *testing.T) {
	for _, effect := range []tool.Effect{tool.NonIdempotent, tool.Idempotent, tool.ReadOnly} {
		t.Run(effect.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, w := streamstest.NodeOptions(natstest.Start(t, nil)), &natstest.Wire{}
				program, caller := layer.Dial(t, o), layer.DialThrough(t, w, o)
				var calls atomic.Int64
				s, err := program.Requests.ServeTool(t.Context(), session.DefaultTenant, "count", func(context.Context, messages.ToolCall) messages.ToolAnswer {
					calls.Add(1)
					return messages.ToolAnswer{Body: json.RawMessage(`"counted"`)}
				})
				must.Do(t, err)
				v := messages.Tool{Name: "count", Effect: effect.String()}
				hook, fired := natstest.Once("counted", natstest.Drop)
				w.Set(hook, nil)
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
				w.Set(nil, nil)
				must.Report(t, s.Stop())
			})
		})
	}
}

// TestToolOfNobody calls a tool that no process answers and whose calls may take less time
// than the wait for an answering process. No program has received the call, so the answer
// does not claim that its work may be done.
func TestToolOfNobody(t *testing.T) {
	for _, timeout := range []time.Duration{300 * time.Millisecond, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			c := layer.Dial(t, streamstest.NodeOptions(natstest.Start(t, nil)))
			began := time.Now()
			_, err := c.ToolOf(session.DefaultTenant, messages.Tool{Name: "count", TimeoutMS: timeout.Milliseconds()}).
				Call(t.Context(), tool.Call{ID: "r1/0", Attempt: 1, Args: json.RawMessage(`{}`)})
			f, ok := errors.AsType[*tool.Failure](err)
			if !ok || f.Kind != tool.Unavailable || !strings.Contains(f.Message, "no program answers the tool count") {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			if took := time.Since(began); took > min(timeout, toolAbsence)+time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestToolBeforeReconnect calls a tool while the connection is being restored. The call was
// not sent, so it is made once the connection is restored, whatever its effect.
func TestToolBeforeReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, w := streamstest.NodeOptions(natstest.Start(t, nil)), &natstest.Wire{}
		program, caller := layer.Dial(t, o), layer.DialThrough(t, w, o)
		var calls atomic.Int64
		s, err := program.Requests.ServeTool(t.Context(), session.DefaultTenant, "count", func(context.Context, messages.ToolCall) messages.ToolAnswer {
			return messages.ToolAnswer{Body: json.RawMessage(strconv.FormatInt(calls.Add(1), 10))}
		})
		must.Do(t, err)
		w.Set(natstest.Drop, natstest.Drop)
		for caller.Conn.Connected() {
			_ = caller.Conn.NC.Publish("x", nil) // each message cuts the connection
			time.Sleep(time.Millisecond)
		}
		time.AfterFunc(2*time.Second, func() { w.Set(nil, nil) })
		r, err := caller.ToolOf(session.DefaultTenant, messages.Tool{Name: "count"}).
			Call(t.Context(), tool.Call{ID: "r1/0", Attempt: 1, Args: json.RawMessage(`{}`)})
		if err != nil || calls.Load() != 1 {
			t.Errorf("%+v, %v after %d calls", r, err, calls.Load())
		}
		must.Report(t, s.Stop())
	})
}

// TestSlowTool calls a tool of a tenant's program that takes minutes, beside other calls of
// it: the answer crosses from the account of the tenant to the account of the nodes.
func TestSlowTool(t *testing.T) {
	for _, takes := range []time.Duration{3 * time.Minute, 9 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			srv := natstest.Start(t, nil)
			caller := layer.Dial(t, streamstest.NodeOptions(srv))
			user, password := srv.Tool()
			program := layer.Dial(t, &streams.Options{Options: conn.Options{Dialer: srv.Dial, User: user, Password: password}, Client: true})
			s := must.Get(program.Requests.ServeTool(t.Context(), session.DefaultTenant, "slow", func(context.Context, messages.ToolCall) messages.ToolAnswer {
				time.Sleep(takes)
				return messages.ToolAnswer{Body: json.RawMessage(`"done"`)}
			}))(t)
			v := messages.Tool{Name: "slow", TimeoutMS: messages.MaxToolTimeoutMS}
			var calls sync.WaitGroup
			for range 5 {
				calls.Go(func() {
					r, err := caller.ToolOf(session.DefaultTenant, v).Call(t.Context(), tool.Call{ID: "r1/0", Attempt: 1, Args: json.RawMessage(`{}`)})
					if body, ok := r.Body.(json.RawMessage); err != nil || !ok || string(body) != `"done"` {
						t.Errorf("a call that takes %v ended with %s, %v", takes, r.Body, err)
					}
				})
				time.Sleep(time.Minute)
			}
			calls.Wait()
			must.Report(t, s.Stop())
		})
	}
}
