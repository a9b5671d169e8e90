package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/mcptest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/tool"
)

// TestElicit passes a server's question during a call to the call's Ask, and the answer to
// the server, with either protocol. Without an answer the call ends with the error of Ask,
// and the connection stays usable.
func TestElicit(t *testing.T) {
	errOpen := errors.New("there is no answer yet")
	for _, kind := range []string{"good", "former"} {
		file := filepath.Join(t.TempDir(), "calls")
		c := connect(t, server(t, kind, ""))
		deploy := func(what string, ask func(context.Context, string, json.RawMessage) (string, json.RawMessage, error)) (string, error) {
			args, err := json.Marshal(map[string]string{"text": what, "file": file})
			must.Do(t, err)
			res, err := c.Call(t.Context(), "s__deploy", tool.Call{Args: args, Ask: ask})
			body, _ := json.Marshal(res.Body)
			return string(body), err
		}
		var asked []string
		_, err := deploy("a\nand b", func(_ context.Context, message string, schema json.RawMessage) (string, json.RawMessage, error) {
			var want, got any
			if json.Unmarshal([]byte(mcptest.Where), &want) != nil || json.Unmarshal(schema, &got) != nil {
				t.Errorf("%s: schema %s", kind, schema)
			}
			asked = append(asked, message)
			return "", nil, errOpen
		})
		if !errors.Is(err, errOpen) || len(asked) != 1 || asked[0] != "Deploy a\nand b where?" {
			t.Errorf("%s: asked %q: %v", kind, asked, err)
		}
		for _, tt := range []struct{ what, action, content, want string }{
			{"b", "accept", `{"copies":3,"place":"staging"}`, "deploys 3 to staging"},
			{"c", "decline", "", "told to decline"},
			{"d", "cancel", "", "told to cancel"},
		} {
			got, err := deploy(tt.what, func(context.Context, string, json.RawMessage) (string, json.RawMessage, error) {
				return tt.action, json.RawMessage(tt.content), nil
			})
			if err != nil || !strings.Contains(got, tt.want) {
				t.Errorf("%s: %s: %s, %v", kind, tt.action, got, err)
			}
		}
		for what, says := range map[string]string{"page": "opens no pages", "e": "there is no user to ask"} {
			if got, err := deploy(what, nil); !strings.Contains(got+errorText(err), says) && !strings.Contains(got, `does not support \"url\"`) {
				t.Errorf("%s: %s: %s, %v; want %q", kind, what, got, err, says)
			}
		}
		data, err := os.ReadFile(file)
		if did := strings.ReplaceAll(string(data), "\n", " "); err != nil || did != "begins begins deploys 3 to staging begins decline begins cancel begins begins " {
			t.Errorf("%s: it did %q, %v", kind, did, err)
		}
	}
}

// TestElicitAtOnce: a server of a former protocol does not identify the call of a question,
// so questions during concurrent calls are rejected instead of being assigned to the wrong
// call.
func TestElicitAtOnce(t *testing.T) {
	for kind, refused := range map[string]bool{"good": false, "former": true} {
		c := connect(t, server(t, kind, ""))
		must.Pair(c.Tools(t.Context()))(t)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		hangs := filepath.Join(t.TempDir(), "hangs")
		wg.Go(func() {
			_, _ = c.Call(ctx, "s__hang", tool.Call{Args: json.RawMessage(`{"file":"` + hangs + `"}`)})
		})
		until(t, func() bool { _, err := os.Stat(hangs); return err == nil })
		res, err := c.Call(t.Context(), "s__deploy", tool.Call{
			Args: json.RawMessage(`{"text":"a"}`),
			Ask: func(context.Context, string, json.RawMessage) (string, json.RawMessage, error) {
				return "accept", json.RawMessage(`{"copies":1,"place":"staging"}`), nil
			},
		})
		body, _ := json.Marshal(res.Body)
		want := "deploys 1 to staging"
		if refused {
			want = "2 calls are running, and the question does not name its call"
		}
		if !strings.Contains(string(body)+errorText(err), want) {
			t.Errorf("%s: %s, %v; want %q", kind, body, err, want)
		}
		cancel()
		wg.Wait()
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen within 30 s")
		}
	}
}

// TestElicitSecret: a question for a secret is rejected, with the field and the remedy, and
// reaches no user.
func TestElicitSecret(t *testing.T) {
	for _, kind := range []string{"good", "former"} {
		c := connect(t, server(t, kind, ""))
		args, err := json.Marshal(map[string]string{"text": `{"type":"object","properties":{"dbPassWord":{"type":"string","title":"Your answer"}}}`})
		must.Do(t, err)
		res, err := c.Call(t.Context(), "s__deploy", tool.Call{Args: args, Ask: func(_ context.Context, message string, _ json.RawMessage) (string, json.RawMessage, error) {
			t.Errorf("%s: a person is asked %q", kind, message)
			return "accept", json.RawMessage(`{"dbPassWord":"hunter2"}`), nil
		}})
		body, _ := json.Marshal(res.Body)
		got := strings.ReplaceAll(string(body)+errorText(err), `\`, "")
		for _, want := range []string{`the field "dbPassWord" asks for a secret`, "in plain text", "the entry of server s in the list of MCP servers, in env or headers"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s; want %q", kind, got, want)
			}
		}
	}
}
