package llmtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// StrictClient is a client with a provider and the dialect of the provider's server.
type StrictClient struct {
	Dialect  Dialect
	Provider llm.Provider
	// Models makes the client, with a transport to its server.
	Models func(http.RoundTripper) llm.Models
}

// RunSessions makes n sessions of random messages, of which each server writes some,
// and asks each server with each of them. The messages have the irregularities that
// models, tools, users, forks and merges cause: blank texts, repeated ids of any form,
// invalid names and arguments, results that fail, are missing, late or without a call,
// images, and thoughts of all servers. Three things hold: a server accepts each
// request; the messages of a request are the beginning of those of a later one, from
// answer to answer; and each text, call, result and image is in the request, in its
// order, with results behind their calls.
func RunSessions(t *testing.T, seed uint64, n int, clients []StrictClient) {
	asked := 0
	for i := range n {
		s := &sessions{rand: rand.New(rand.NewPCG(seed, uint64(i))), clients: clients}
		if err := s.run(); err != nil {
			t.Fatalf("session %d of seed %d: %v", i, seed, err)
		}
		asked += s.asked
	}
	t.Logf("%d sessions, %d requests", n, asked)
}

// sessions makes one session.
type sessions struct {
	rand    *rand.Rand
	clients []StrictClient
	all     []llm.Message
	n       int // of the newest token
	asked   int
	body    []byte // of the newest request
	turn    Turn   // the next answer
}

func (s *sessions) run() error {
	for range 2 + s.rand.IntN(12) {
		if err := s.step(); err != nil {
			return err
		}
	}
	if !s.spoken(len(s.all)) {
		s.add(llm.User, s.text('U'))
	}
	for _, c := range s.clients {
		if err := s.check(c); err != nil {
			return fmt.Errorf("%s: %w\nmessages %s\nbody %s", c.Dialect, err, marshal(s.all), s.body)
		}
	}
	return nil
}

// chance is true once in n times.
func (s *sessions) chance(n int) bool { return s.rand.IntN(n) == 0 }

func pick[T any](s *sessions, of ...T) T { return of[s.rand.IntN(len(of))] }

// token makes a word that occurs once in a session: a letter for its kind, and a number.
func (s *sessions) token(kind byte) string {
	s.n++
	return fmt.Sprintf("%c%05dx", kind, s.n)
}

func (s *sessions) text(kind byte) string {
	if s.chance(5) {
		return pick(s, "", " ", "\n\n", "\u00a0", "\u2003\t")
	}
	return pick(s, "", " ", "\n") + s.token(kind) + pick(s, "", " 🙂", "\n", " \u202e<b>&\"\\", " é\u0301")
}

func (s *sessions) add(role llm.Role, text string) {
	s.all = append(s.all, llm.Message{Role: role, Text: text})
}

func (s *sessions) images(kind byte) []llm.Image {
	data := []byte(s.token(kind))
	return []llm.Image{{Type: "image/png", Size: int64(len(data)), Data: data}}
}

// step adds messages.
func (s *sessions) step() error {
	switch s.rand.IntN(12) {
	case 0:
		s.add(llm.System, s.text('U'))
	case 1, 2, 3:
		s.add(llm.User, s.text('U'))
		if s.chance(4) {
			s.all[len(s.all)-1].Images = s.images('I')
		}
	case 4: // of a file, or of another program
		s.add(llm.Assistant, s.text('A'))
		if s.chance(2) {
			last := &s.all[len(s.all)-1]
			last.Calls = s.calls()
			s.results(last.Calls)
		}
	case 5: // of no call
		s.all = append(s.all, llm.Message{Role: llm.Tool, CallID: pick(s, "gone", "call_0"), Name: "f", Text: s.text('R'), Failed: s.chance(2)})
	case 6: // a branch that was merged repeats rows
		if n := len(s.all); n > 0 {
			from := s.rand.IntN(n)
			s.all = append(s.all, s.all[from:from+s.rand.IntN(n-from+1)]...)
		}
	default:
		return s.answer()
	}
	return nil
}

func (s *sessions) calls() (all []session.ToolCall) {
	for range 1 + s.rand.IntN(3) {
		all = append(all, session.ToolCall{
			ID:   pick(s, "call_0", "call_0", "toolu_01", "functions.f:0", "a b/ü", strings.Repeat("x", 50), strings.Repeat("y", 120), "123456789", fmt.Sprint("id", s.n)),
			Name: pick(s, "f", "f", "g", "fs.read", "", "weird tool é", strings.Repeat("n", 90)),
			Args: pick(s, `{"x":"%s"}`, `{"x":"%s"}`, `{ "x" : "%s", "y": [1, null] }`, `{"x":"%s"`, `"%s"`, `[%q]`, `%s`),
		})
		last := &all[len(all)-1]
		last.Args = strings.NewReplacer("%s", s.token('C'), "%q", `"`+s.token('C')+`"`).Replace(last.Args)
		if s.chance(9) {
			last.Args = ""
		}
	}
	return all
}

// results adds results of calls: incomplete, out of order, and mixed with others.
func (s *sessions) results(calls []session.ToolCall) {
	for _, i := range s.rand.Perm(len(calls)) {
		if s.chance(8) {
			continue
		}
		if s.chance(6) {
			s.add(pick(s, llm.User, llm.System), s.text('U'))
		}
		m := llm.Message{Role: llm.Tool, CallID: calls[i].ID, Name: calls[i].Name, Text: s.text('R'), Failed: s.chance(4)}
		if s.chance(6) {
			m.Images = s.images('J')
		}
		s.all = append(s.all, m)
		if s.chance(12) {
			s.all = append(s.all, m) // a second one
		}
	}
}

// answer makes a server answer the session.
func (s *sessions) answer() error {
	if !s.spoken(len(s.all)) {
		s.add(llm.User, s.token('U'))
	}
	s.turn = Turn{Text: s.text('A')}
	if s.chance(2) {
		s.turn.Thought = "I think."
	}
	if s.chance(2) {
		s.turn.Calls = s.calls()
	}
	c := pick(s, s.clients...)
	resp, err := s.ask(c, s.all, 0)
	if err != nil {
		return fmt.Errorf("%s: %w\nmessages %s\nbody %s", c.Dialect, err, marshal(s.all), s.body)
	}
	s.all = append(s.all, resp.Message())
	s.results(resp.Calls)
	return nil
}

// ask sends a request to the strict server of a client.
func (s *sessions) ask(c StrictClient, all []llm.Message, from int) (*llm.Response, error) {
	s.asked++
	server := &StrictServer{Dialect: c.Dialect, Answer: func(body []byte, mark string) string {
		s.body = bytes.Clone(body)
		return c.Dialect.Document(mark, s.turn)
	}, Refused: func(body []byte, _ error) { s.body = bytes.Clone(body) }}
	client, err := c.Models(way{server}).Client(noContext, c.Provider)
	if err != nil {
		return nil, err
	}
	return client.Complete(noContext, &llm.Request{
		Provider: c.Provider, Messages: all, ThoughtsFrom: from,
		Tools: []llm.ToolSpec{{Name: "f", Schema: `{"type":"object","properties":{"x":{"type":"string"}}}`}, {Name: "g"}},
	}, nil)
}

// spoken reports whether the first n messages include one that is not blank and no
// instruction.
func (s *sessions) spoken(n int) bool {
	for _, m := range s.all[:n] {
		if m.Role != llm.System && (strings.TrimSpace(m.Text) != "" || len(m.Calls)+len(m.Images) > 0 || m.Role == llm.Tool) {
			return true
		}
	}
	return false
}

// check requests an answer for the session, as it is and as it was before each answer.
func (s *sessions) check(c StrictClient) error {
	s.turn = Turn{Text: "ok"}
	from := 0
	if s.chance(3) {
		from = s.rand.IntN(len(s.all) + 1)
	}
	if _, err := s.ask(c, s.all, from); err != nil {
		return err
	}
	whole, err := c.Dialect.read(s.body)
	if err != nil {
		return err
	}
	if err := whole.has(s.all); err != nil {
		return err
	}
	for i := range s.all {
		m := &s.all[i]
		if m.Role != llm.Assistant || !s.spoken(i) || strings.TrimSpace(m.Text) == "" && len(m.Calls) == 0 {
			continue
		}
		if _, err := s.ask(c, s.all[:i], from); err != nil {
			return fmt.Errorf("before answer %d: %w", i, err)
		}
		before, err := c.Dialect.read(s.body)
		if err != nil {
			return err
		}
		for j, item := range before.items {
			if j >= len(whole.items) || !bytes.Equal(item, whole.items[j]) {
				return fmt.Errorf("the request before answer %d is not the beginning of the last one, which has no %d. %s", i, j, item)
			}
		}
	}
	return nil
}

// way is a transport to a handler, without a socket.
type way struct{ http.Handler }

func (w way) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Host = r.URL.Host
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, r)
	resp := rec.Result()
	resp.Request = r
	return resp, nil
}
