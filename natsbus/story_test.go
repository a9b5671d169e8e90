package natsbus_test

import (
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/internal/natstest"
)

// The stories in this file are what a program in another language does: a
// plain NATS client without credentials, and JSON.

type inProcess func() (net.Conn, error)

func (d inProcess) InProcessConn() (net.Conn, error) { return d() }

// guest is a NATS client without credentials.
func guest(t *testing.T, srv *natsserver.Server) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(inProcess(srv.Dial)))
	if err != nil {
		t.Fatal(err)
	}
	return nc
}

// object is any JSON object.
type object map[string]any

// heard collects what a guest hears of a run.
type heard struct {
	deltas, events, results chan object
}

func listen(t *testing.T, nc *nats.Conn, id string) heard {
	t.Helper()
	h := heard{make(chan object, 100), make(chan object, 100), make(chan object, 100)}
	for part, out := range map[string]chan object{"delta": h.deltas, "event": h.events, "result": h.results} {
		if _, err := nc.Subscribe("rath.run.default."+id+"."+part, func(m *nats.Msg) { out <- read(t, m.Data) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return h
}

func read(t *testing.T, data []byte) object {
	t.Helper()
	var o object
	if err := json.Unmarshal(data, &o); err != nil {
		t.Errorf("not JSON: %v: %s", err, data)
	}
	return o
}

// ask sends a request and reads the answer.
func ask(t *testing.T, nc *nats.Conn, subject, body string) object {
	t.Helper()
	m, err := nc.Request(subject, []byte(body), 20*time.Second)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	return read(t, m.Data)
}

// submit publishes a task and demands the stream's acknowledgement.
func submit(t *testing.T, nc *nats.Conn, workflow, body string) {
	t.Helper()
	ack := ask(t, nc, "rath.task.default."+workflow, body)
	if ack["stream"] != "TASKS" || ack["error"] != nil {
		t.Fatalf("acknowledgement: %v", ack)
	}
}

// next waits for a message.
func next(t *testing.T, from chan object, what string) object {
	t.Helper()
	select {
	case o := <-from:
		return o
	case <-time.After(time.Minute):
		t.Fatalf("no %s", what)
		return nil
	}
}

// story runs f beside a node, in virtual time.
func story(t *testing.T, f func(t *testing.T, n *node, nc *nats.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		n := startNode(t, srv, "node-1")
		nc := guest(t, srv)
		f(t, n, nc)
		nc.Close()
		n.stop()
	})
}

func TestStoryOfATask(t *testing.T) {
	story(t, func(t *testing.T, n *node, nc *nats.Conn) {
		h := listen(t, nc, "r1")
		submit(t, nc, "agent", `{"id":"r1","input":"hello there"}`)
		result := next(t, h.results, "result")
		if result["state"] != "succeeded" || result["output"] != "echo: hello there" {
			t.Errorf("result %v", result)
		}
		text := ""
		for n := 1.0; text != "echo: hello there"; n++ {
			d := next(t, h.deltas, fmt.Sprintf("delta %v after %q", n, text))
			if d["n"] != n {
				t.Errorf("delta %v, want number %v", d, n)
			}
			text += d["text"].(string)
		}
		for seen := (object{}); seen["kind"] != "ended"; {
			seen = next(t, h.events, "event of the end")
			if seen["run"] != "r1" || seen["summary"] == "" {
				t.Errorf("event %v", seen)
			}
		}
		if late := ask(t, nc, "rath.query.default.result", `{"run":"r1"}`); late["output"] != "echo: hello there" {
			t.Errorf("a late reader gets %v", late)
		}
	})
}
