package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// TestLetterBesideRerun reruns a task, and retries another one that was refused because its
// id was in use: each gets an id of its own.
func TestLetterBesideRerun(t *testing.T) {
	story(t, func(t *testing.T, n *node, nc *nats.Conn) {
		c := must.Get(api.Connect(t.Context(), &streams.Options{Options: conn.Options{Dialer: n.srv.Dial}, Client: true}))(t)
		defer c.Conn.Close()
		for _, first := range []string{"r1", strings.Repeat("r", 64)} {
			submit(t, nc, "agent", fmt.Sprintf(`{"id":%q,"input":"one"}`, first))
			succeeded(t, nc, first)
			submit(t, nc, "agent", fmt.Sprintf(`{"id":%q,"input":"two"}`, first)) // a dead letter
			time.Sleep(time.Second)
			again := ask(t, nc, "rath.ctl.default.anonymous."+first+".rerun", `{}`)
			if again["done"] != true {
				t.Fatal(again)
			}
			succeeded(t, nc, again["note"].(string))
			letters, err := c.Requests.DeadLetters(t.Context(), session.DefaultTenant, 0, 0)
			if err != nil || len(letters.Letters) != 1 {
				t.Fatal(letters, err)
			}
			id, err := c.Requests.RetryDeadLetter(t.Context(), session.DefaultTenant, letters.Letters[0].At, messages.Control{By: "ann"})
			if err != nil || string(id) == again["note"] {
				t.Errorf("the letter is retried as %s, %v; the run again is %s", id, err, again["note"])
			}
			if r := resultOf(t, nc, string(id)); r["output"] != "echo: two" {
				t.Errorf("result %v", r)
			}
		}
	})
}
