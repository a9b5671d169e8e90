package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestServeOverLostConnection loses the connection while a service begins, before the
// server has confirmed its subscription.
func TestServeOverLostConnection(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Conn, w *natstest.Wire) {
		hook, fired := natstest.Once("PING\r\n", natstest.Drop)
		w.Set(nil, hook)
		s, err := c.ServeControl(t.Context(), func(context.Context, journal.Signal) error { return nil }, nil, nil)
		if err != nil || !fired() {
			t.Fatalf("the connection was lost: %v; %v", fired(), err)
		}
		m, err := c.Conn.NC.Request(messages.ControlSubject("default", messages.UserAnonymous, "r1", messages.VerbMessage), []byte(`{"text":"hello"}`), time.Minute)
		must.Do(t, err)
		if a, err := wire.DecodeAnswer(m.Data); err != nil || a.Error == nil || a.Error.Code != run.CodeUnknownRun {
			t.Errorf("about a run that nobody submitted: %s, %v", m.Data, err)
		}
		must.Report(t, s.Stop())
	})
}

// TestServiceThatIsNot begins a service that fails to begin, and ends one while the
// connection is lost: the next process that serves the same gets all requests.
func TestServiceThatIsNot(t *testing.T) {
	const tenant = session.DefaultTenant
	serve := func(ctx context.Context, c *Conn, answer string) (*conn.Service, error) {
		return c.Requests.ServeTool(ctx, tenant, "weather", func(ctx context.Context, _ messages.ToolCall) messages.ToolAnswer {
			if ctx.Err() != nil {
				answer = `"the service is over"`
			}
			return messages.ToolAnswer{Body: json.RawMessage(answer)}
		})
	}
	for _, tt := range []struct {
		name  string
		begin func(t *testing.T, c *Conn, w *natstest.Wire)
	}{
		{"not begun", func(t *testing.T, c *Conn, w *natstest.Wire) {
			ctx, cancel := context.WithCancel(t.Context())
			hook, fired := natstest.Once("PING\r\n", func(b []byte) bool {
				cancel()
				return natstest.Replace("PING\r\n", "PONG\r\n")(b) // the server does not answer
			})
			w.Set(nil, hook)
			if _, err := serve(ctx, c, `"first"`); !errors.Is(err, context.Canceled) || !fired() {
				t.Fatalf("the service began: %v", err)
			}
		}},
		{"ended without a connection", func(t *testing.T, c *Conn, w *natstest.Wire) {
			s := must.Get(serve(t.Context(), c, `"first"`))(t)
			w.Set(natstest.Drop, natstest.Drop)
			for c.Conn.Connected() {
				_ = c.Conn.NC.Publish("x", nil) // each message cuts the connection
				time.Sleep(time.Millisecond)
			}
			must.Do(t, s.Stop())
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, w := streamstest.NodeOptions(natstest.Start(t, nil)), &natstest.Wire{}
				c, caller := layer.DialThrough(t, w, o), layer.Dial(t, o)
				tt.begin(t, c, w)
				w.Set(nil, nil)
				time.Sleep(time.Minute)
				s := must.Get(serve(t.Context(), c, `"second"`))(t)
				for range 20 {
					m := must.Get(caller.Conn.NC.Request(messages.ToolSubject(tenant, "weather"), []byte(`{"id":"r/0","attempt":1,"args":{}}`), time.Minute))(t)
					if string(m.Data) != `{"body":"second"}` {
						t.Fatalf("the answer is %s", m.Data)
					}
				}
				must.Report(t, s.Stop())
			})
		})
	}
}

// TestServiceEnds: a service that stops does not wait for a request that takes
// long once its context has ended, nor for code that does not heed it.
func TestServiceEnds(t *testing.T) {
	for _, tt := range []struct {
		name  string
		heeds bool
		after time.Duration
	}{{"refused", true, 2 * time.Second}, {"left behind", false, 7 * time.Second}} {
		t.Run(tt.name, func(t *testing.T) {
			layer.InBubble(t, func(t *testing.T, c *Conn, _ *natstest.Wire) {
				ctx, refuse := context.WithCancel(t.Context())
				taken, release := make(chan struct{}), make(chan struct{})
				s := must.Get(c.ServeNode(ctx, "n1", "wait", func(ctx context.Context, _ []byte) (any, error) {
					close(taken)
					if tt.heeds {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					<-release
					return wire.Answer{Done: true}, nil
				}))(t)
				answered := make(chan error, 1)
				go func() {
					_, err := c.Requests.AskNode(t.Context(), "n1", "wait", struct{}{})
					answered <- err
				}()
				<-taken
				began := time.Now()
				time.AfterFunc(2*time.Second, refuse)
				if err := s.Stop(); (err == nil) != tt.heeds {
					t.Errorf("stopped: %v", err)
				}
				if took := time.Since(began); took != tt.after {
					t.Errorf("it took %v, want %v", took, tt.after)
				}
				close(release)
				if err := <-answered; (err == nil) == tt.heeds {
					t.Errorf("the answer: %v", err)
				}
			})
		})
	}
}

// TestServicePanics: a request whose handling panics is refused, and the next one
// answered.
func TestServicePanics(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Conn, _ *natstest.Wire) {
		s := must.Get(c.ServeNode(t.Context(), "n1", "do", func(_ context.Context, body []byte) (any, error) {
			var what struct{ Fail bool }
			if err := json.Unmarshal(body, &what); err != nil || what.Fail {
				panic("no such luck")
			}
			return wire.Answer{Done: true}, nil
		}))(t)
		if _, err := c.Requests.AskNode(t.Context(), "n1", "do", map[string]bool{"fail": true}); err == nil || !strings.Contains(err.Error(), "no such luck") {
			t.Errorf("a request that panics: %v", err)
		}
		if _, err := c.Requests.AskNode(t.Context(), "n1", "do", struct{}{}); err != nil {
			t.Errorf("the next one: %v", err)
		}
		must.Report(t, s.Stop())
	})
}

// TestStoppingNode: a request rejected by a stopping node is answered by another one, and
// fails with the reason if there is none. Both get the same id.
func TestStoppingNode(t *testing.T) {
	query := func(ctx context.Context, c *Conn) error {
		data, err := c.Requests.Query(ctx, "default", messages.QueryRuns, wire.Query{})
		if err == nil && len(data) == 0 {
			return errors.New("the answer is empty")
		}
		return err
	}
	cancel := func(ctx context.Context, c *Conn) error {
		_, err := c.Requests.Control(ctx, "default", "r", messages.VerbCancel, messages.Control{})
		return err
	}
	withdraw := func(ctx context.Context, c *Conn) error { return c.Requests.WithdrawTool(ctx, "default", "t") }
	dropLetter := func(ctx context.Context, c *Conn) error {
		return c.Requests.DropDeadLetter(ctx, "default", 7, messages.Control{})
	}
	answer := func(err error) any { return wire.AnswerOf(err) }
	for name, tc := range map[string]struct {
		subject string
		ask     func(ctx context.Context, c *Conn) error
		answer  func(error) any // nil: as a query's
	}{
		"query":   {messages.QuerySubject("default", messages.QueryRuns), query, nil},
		"control": {messages.ControlSubject("default", "node", "r", messages.VerbCancel), cancel, answer},
		"tool":    {messages.ToolControlSubject("default", "node", "t", messages.VerbWithdraw), withdraw, answer},
		"letter":  {messages.LetterSubject("default", "node", 7, messages.VerbDrop), dropLetter, answer},
	} {
		for _, others := range []bool{true, false} {
			reply := func(c *Conn, m *nats.Msg, err error) {
				if tc.answer == nil {
					c.reply(m.Reply, m.Subject, map[string]any{"runs": []any{}}, err)
				} else {
					c.reply(m.Reply, m.Subject, tc.answer(err), nil)
				}
			}
			t.Run(fmt.Sprintf("%s, others %v", name, others), func(t *testing.T) {
				layer.InBubble(t, func(t *testing.T, c *Conn, _ *natstest.Wire) {
					// One subscription represents both nodes: its handler is called for one
					// request after the other.
					var asked atomic.Int64
					var body []byte
					var node *nats.Subscription
					node, err := c.Conn.NC.Subscribe(tc.subject, func(m *nats.Msg) {
						if asked.Add(1) > 1 {
							if !bytes.Equal(m.Data, body) {
								t.Errorf("first asked %s, then %s", body, m.Data)
							}
							reply(c, m, nil)
							return
						}
						body = m.Data
						if !others {
							must.Report(t, node.Unsubscribe())
						}
						reply(c, m, fmt.Errorf("%w: the node ends", session.ErrUnavailable))
					})
					must.Do(t, err)
					want := int64(1)
					if others {
						want = 2
					}
					err = tc.ask(t.Context(), c)
					if others && err != nil || !others && !errors.Is(err, session.ErrUnavailable) || asked.Load() != want {
						t.Errorf("%v after %d questions", err, asked.Load())
					}
				})
			})
		}
	}
}

// TestTenantThatAsksALot has a tenant send more requests than a node answers concurrently.
// It gets busy for the rest, another tenant is answered, and large requests count for more.
func TestTenantThatAsksALot(t *testing.T) {
	for _, tt := range []struct {
		name           string
		text           int // bytes
		sent, answered int
	}{{"small", 1, 300, 192}, {"large", 65_530, 128, 96}} {
		t.Run(tt.name, func(t *testing.T) {
			layer.InBubble(t, func(t *testing.T, c *Conn, _ *natstest.Wire) {
				held, let := atomic.Int32{}, make(chan struct{})
				release := sync.OnceFunc(func() { close(let) })
				defer release()
				s := must.Get(c.ServeControl(t.Context(), func(ctx context.Context, s journal.Signal) error {
					if s.To.Tenant == "loud" {
						held.Add(1)
						<-let
					}
					return nil
				}, nil, nil))(t)
				answers := must.Get(c.Conn.NC.SubscribeSync(c.Conn.NC.NewInbox()))(t)
				body := must.Get(messages.Encode(messages.Control{Text: strings.Repeat("x", tt.text)}))(t)
				subject := func(of session.Tenant) string {
					return messages.SessionMessageSubject(session.Key{Tenant: of, ID: "s1-1-0"}, messages.UserAnonymous)
				}
				for range tt.sent {
					must.Do(t, c.Conn.NC.PublishRequest(subject("loud"), answers.Subject, body))
				}
				for range tt.sent - tt.answered {
					m := must.Get(answers.NextMsg(time.Minute))(t)
					if a, err := wire.DecodeAnswer(m.Data); err != nil || a.Error == nil || a.Error.Code != run.CodeBusy {
						t.Fatalf("a request too many: %s, %v", m.Data, err)
					}
				}
				m := must.Get(c.Conn.NC.Request(subject("quiet"), []byte(`{"text":"hello"}`), time.Minute))(t)
				if a, err := wire.DecodeAnswer(m.Data); err != nil || !a.Done {
					t.Errorf("the other tenant: %s, %v", m.Data, err)
				}
				synctest.Wait() // until those that were taken have come to where they stay
				if n := int(held.Load()); n != tt.answered {
					t.Errorf("%d requests are being answered, want %d", n, tt.answered)
				}
				release()
				must.Report(t, s.Stop())
			})
		})
	}
}
