package notify

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/sandbox/egress"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

const key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func asked() *message {
	return &message{
		input: input{Event: Event{Kind: Question, Run: "r1", Workflow: "review", Step: "2.a<b>|&.0", Sequence: 7, TimeMS: 1764000000123}, To: "ops"},
		id:    "notify-1", tenant: "acme", link: "https://rath.example.com/t/acme/questions/r1/2.a%3Cb%3E%7C&.0",
	}
}

// TestForms compares the bytes of each form.
func TestForms(t *testing.T) {
	m := asked()
	body := must.Get(m.standard())(t)
	same(t, string(body), `{"data":{"link":"https://rath.example.com/t/acme/questions/r1/2.a%3Cb%3E%7C\u0026.0","run":"r1","sequence":7,"tenant":"acme","workflow":"review"},"id":"notify-1","timestamp":"2025-11-24T16:00:00.123Z","type":"question.asked"}`)
	same(t, string(must.Get(m.slack())(t)), `{"text":"<https://rath.example.com/t/acme/questions/r1/2.a%3Cb%3E%7C&amp;.0|Question: run r1 of review, tenant acme, waits for an answer>"}`+"\n")
	m.Workflow, m.link = "<!here>&|", ""
	same(t, string(must.Get(m.slack())(t)), `{"text":"Question: run r1 of &lt;!here&gt;&amp;%7C, tenant acme, waits for an answer"}`+"\n")
	// The example of the specification.
	sum := must.Get(sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`)))(t)
	same(t, sum, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	m = asked()
	m.tenant, m.Kind = "default", reminder
	mail := string(m.mail("rath@example.com", []string{"a@example.com", "b@example.com"}, time.Unix(1764000000, 0).UTC()))
	same(t, mail, strings.ReplaceAll(`From: rath@example.com
To: a@example.com, b@example.com
Subject: Still open: run r1 of review waits for an answer
Date: Mon, 24 Nov 2025 16:00:00 +0000
Message-ID: <notify-1@example.com>
Auto-Submitted: auto-generated
MIME-Version: 1.0
Content-Type: text/plain; charset=utf-8

Still open: run r1 of review waits for an answer.

https://rath.example.com/t/acme/questions/r1/2.a%3Cb%3E%7C&.0
`, "\n", "\r\n"))
}

func same(t *testing.T, got, want string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

const good = `
link: https://rath.example.com/
targets:
  ops: {form: slack, url: env:OPS}
  pager: {form: standard, url: file:pager, secret: env:PAGER, private: [10.0.0.0/8]}
  post: {form: mail, server: "smtp://mail.example.com:25", from: rath@example.com, to: [a@example.com]}
rules:
  - {tenant: acme, on: [question, failed], workflows: [review*], to: ops, again: {after: 30m, to: post}}
  - {tenant: acme, on: [budget, failed], to: ops}
  - {on: [question], to: pager}
`

// TestRules: an event has one task for each target, under the same ids each time, and the
// events of another tenant and of notifications have none.
func TestRules(t *testing.T) {
	l := must.Get(Parse("targets.yaml", []byte(good)))(t)
	to := func(tenant, kind, workflow string) (all []string) {
		ids := map[string]bool{}
		for range 2 {
			all = nil
			for _, task := range l.Tasks("", "", Event{}) {
				t.Errorf("an empty event has task %s", task.ID)
			}
			for _, task := range l.Tasks(session.Tenant(tenant), "EV_1_0/7/2", Event{Kind: kind, Run: "r1", Workflow: workflow}) {
				var in input
				must.Do(t, json.Unmarshal(task.Input, &in))
				must.Do(t, task.Check())
				all, ids[string(task.ID)+task.Session] = append(all, fmt.Sprintf("%s+%d", in.To, in.AfterMS/1000)), true
			}
		}
		if len(ids) != len(all) {
			t.Errorf("%d ids of %d tasks", len(ids), len(all))
		}
		return all
	}
	for _, tt := range []struct {
		tenant, kind, workflow string
		want                   []string
	}{
		{"acme", Question, "review2", []string{"ops+0", "post+1800"}},
		{"acme", Question, "other", nil},
		{"acme", Budget, "review", []string{"ops+0"}},
		{"acme", Budget, "other", []string{"ops+0"}},
		{"acme", Failed, "other", []string{"ops+0"}},
		{"acme", Failed, Workflow, nil},
		{"acme", DeadLetter, "review", nil},
		{"default", Question, "review", []string{"pager+0"}},
		{"other", Question, "review", nil},
	} {
		if d := cmp.Diff(tt.want, to(tt.tenant, tt.kind, tt.workflow)); d != "" {
			t.Errorf("%+v: %s", tt, d)
		}
	}
}

// TestDocument: the list in the documents is one.
func TestDocument(t *testing.T) {
	page := string(must.Get(os.ReadFile(filepath.Join("..", "..", "..", "docs", "notify.md")))(t))
	_, text, _ := strings.Cut(page, "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	if l := must.Get(Parse("targets.yaml", []byte(text)))(t); len(l.targets) != 3 || len(l.rules) != 2 {
		t.Errorf("%d targets, %d rules", len(l.targets), len(l.rules))
	}
}

// TestMistakes: each mistake of a list is reported with its line and a remedy, and a secret
// in place of its reference is not repeated.
func TestMistakes(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{"url: env:OPS", "url: https://hooks.example.com/T/secret", "targets.yaml:4: target ops: url holds no reference"},
		{"form: slack", "form: pigeon", "targets.yaml:4: target ops: form: want standard, slack or mail"},
		{"secret: env:PAGER, ", "", "targets.yaml:5: target pager: form standard: want url and secret"},
		{"10.0.0.0/8", "10.0.0.0/99", `targets.yaml:5: target pager: private: "10.0.0.0/99": want true`},
		{"smtp://mail.example.com:25", "mail.example.com", "targets.yaml:6: target post: server: want smtp://HOST:PORT"},
		{"rath@example.com", `"rath@example.com\r\nBcc: x@example.com"`, "targets.yaml:6: target post: from: want at most"},
		{"rath@example.com", `"R <rath@example.com>"`, `targets.yaml:6: target post: "R <rath@example.com>": want the address of a mailbox alone`},
		{"to: [a@example.com]", "to: [a@example.com], user: u", "targets.yaml:6: target post: form mail: want server, from, to"},
		{"form: slack", "form: slack, secret: env:S", "targets.yaml:4: target ops: form slack: want url"},
		{"on: [budget, failed]", "on: [lunch]", "targets.yaml:9: rule: on: want a list of question"},
		{"on: [budget, failed]", "on: [again]", "targets.yaml:9: rule: on: want a list of question"},
		{"to: pager", "to: nobody", "targets.yaml:10: rule: to: want the name of a target"},
		{"after: 30m", "after: 30", "targets.yaml:8: rule: again: after: want a time"},
		{"on: [question, failed]", "on: [failed]", "targets.yaml:8: rule: again: want after and to"},
		{"workflows: [review*]", "workflows: ['[']", "targets.yaml:8: rule: workflows"},
		{"link: https", "link: ftp", "targets.yaml:2: link: want the address of the pages"},
		{"tenant: acme, on: [budget", "tenant: a b, on: [budget", "targets.yaml:9: rule: tenant: want the name of a tenant"},
		{"  - {on: [question], to: pager}", "  - {on: [question], then: pager}", `targets.yaml:10: rule: unknown field "then"; the fields are again, on, tenant, to, workflows`},
		{"rules:\n", "regeln:\n", `targets.yaml:7: the list: unknown field "regeln"`},
	} {
		text := strings.Replace(good, tt.old, tt.new, 1)
		_, err := Parse("targets.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "T/secret") {
			t.Errorf("%s: %v", tt.new, err)
		}
	}
}

// senderOf returns a sender of the list, in whose world names have addresses.
func senderOf(t *testing.T, list string, env map[string]string, names map[string]string) *sender {
	t.Helper()
	file := filepath.Join(t.TempDir(), "targets.yaml")
	must.Do(t, os.WriteFile(file, []byte(list), 0o600))
	world := egress.Options{Lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
		if a, err := netip.ParseAddr(host); err == nil {
			return []netip.Addr{a}, nil
		}
		return []netip.Addr{netip.MustParseAddr(names[host])}, nil
	}}
	return &sender{must.Get(Read(file))(t), func(name string) string { return env[name] }, world}
}

// TestAnswers: what each answer of a server means for the next attempt, without the address
// or the secret of the target in any reason.
func TestAnswers(t *testing.T) {
	var status atomic.Int64
	var got atomic.Pointer[http.Request]
	var elsewhere atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/hook/canary" {
			elsewhere.Add(1)
			return
		}
		body, err := io.ReadAll(r.Body)
		must.Report(t, err)
		at := r.Header.Get("Webhook-Timestamp")
		h := hmac.New(sha256.New, must.Get(base64.StdEncoding.DecodeString(strings.TrimPrefix(key, "whsec_")))(t))
		fmt.Fprintf(h, "%s.%s.%s", r.Header.Get("Webhook-Id"), at, body)
		if want := "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil)); r.Header.Get("Webhook-Signature") != want || r.Header.Get("Webhook-Id") != "notify-1" {
			t.Errorf("headers %v", r.Header)
		}
		got.Store(r)
		w.Header().Set("Location", "/canary-elsewhere")
		w.WriteHeader(int(status.Load()))
		_, _ = io.CopyN(w, zeros{}, 1<<20)
	}))
	defer server.Close()
	list := "targets:\n  ops: {form: standard, url: env:URL, secret: env:KEY, private: [127.0.0.1]}\nrules:\n  - {tenant: acme, on: [question], to: ops}\n"
	env := map[string]string{"URL": server.URL + "/hook/canary", "KEY": key, "HTTP_PROXY": "http://127.0.0.1:1"}
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	s := senderOf(t, list, env, map[string]string{"rebound.example": "169.254.169.254"})
	for _, tt := range []struct {
		status int
		want   outcome
	}{
		{200, outcome{Sent: true}},
		{204, outcome{Sent: true}},
		{302, outcome{Why: "it answered 302 Found; redirects are not followed: make the final address its url"}},
		{400, outcome{Final: true, Why: "it answered 400 Bad Request"}},
		{410, outcome{Final: true, Why: "it answered 410 Gone"}},
		{408, outcome{Why: "it answered 408 Request Timeout"}},
		{425, outcome{Why: "it answered 425 Too Early"}},
		{429, outcome{Why: "it answered 429 Too Many Requests"}},
		{500, outcome{Why: "it answered 500 Internal Server Error"}},
	} {
		status.Store(int64(tt.status))
		if out := s.send(t.Context(), asked()); out != tt.want {
			t.Errorf("%d: %+v", tt.status, out)
		}
	}
	if elsewhere.Load() > 0 {
		t.Error("a redirect was followed")
	}
	closed := httptest.NewServer(nil)
	closed.Close()
	secure := httptest.NewUnstartedServer(nil)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	for at, want := range map[string]string{
		closed.URL + "/canary":                    "it refused the connection",
		secure.URL + "/canary":                    "its certificate was not verified",
		"http://rebound.example/canary":           "its address is not on the Internet",
		"https://[::1]:1/canary":                  "its address is not on the Internet",
		"https://[::ffff:127.0.0.2]:1/canary":     "its address is not on the Internet",
		"://canary":                               "its url is not https://",
		"gopher://canary":                         "its url is not https://",
		"":                                        "the variable URL, which targets.yaml names for the target ops, is not set",
		"http://canary.example\x7f/":              "its url is not https://",
		"https://u:canary@rebound.example/canary": "its address is not on the Internet",
	} {
		env["URL"] = at
		if out := s.send(t.Context(), asked()); out.Sent || out.Final || !strings.Contains(out.Why, want) || strings.Contains(out.Why, "canary") {
			t.Errorf("%s: %+v", at, out)
		}
	}
	env["URL"], env["KEY"] = server.URL+"/hook/canary", "whsec_canary"
	if out := s.send(t.Context(), asked()); out.Sent || strings.Contains(out.Why, "canary") {
		t.Errorf("a wrong key: %+v", out)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestPlainHTTP: a target on the Internet gets nothing without TLS.
func TestPlainHTTP(t *testing.T) {
	s := senderOf(t, "targets:\n  ops: {form: slack, url: env:URL}\nrules:\n  - {tenant: acme, on: [question], to: ops}\n", map[string]string{"URL": "http://hooks.example/x"}, nil)
	if out := s.send(t.Context(), asked()); out.Sent || !strings.Contains(out.Why, "its url is not https://") {
		t.Errorf("%+v", out)
	}
}

// TestHangs: an attempt at a server that never answers ends, with the run at the latest.
func TestHangs(t *testing.T) {
	l := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	list := "targets:\n  ops: {form: slack, url: env:URL, private: true}\n  post: {form: mail, server: \"smtp://%s\", from: r@example.com, to: [a@example.com], private: true}\nrules:\n  - {tenant: acme, on: [question], to: ops}\n  - {tenant: acme, on: [question], to: post}\n"
	s := senderOf(t, fmt.Sprintf(list, l.Addr()), map[string]string{"URL": "http://" + l.Addr().String()}, nil)
	for _, to := range []string{"ops", "post"} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		m := asked()
		m.To = to
		if out := s.send(ctx, m); out.Sent || out.Final || !strings.Contains(out.Why, "did not answer") {
			t.Errorf("%s: %+v", to, out)
		}
		cancel()
	}
}

// mailServer accepts one message for each connection, and refuses the recipients of nobody.
func mailServer(t *testing.T, secure *tls.Config) (addr string, got chan string) {
	t.Helper()
	l := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	got = make(chan string, 8)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			got <- talk(c, secure)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String(), got
}

// talk speaks SMTP as a server.
func talk(c net.Conn, secure *tls.Config) string {
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	var seen strings.Builder
	fmt.Fprint(c, "220 here\r\n")
	data := false
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		line := lines.Text()
		seen.WriteString(line + "\n")
		switch verb, _, _ := strings.Cut(line, " "); {
		case data:
			if data = line != "."; !data {
				fmt.Fprint(c, "250 kept\r\n")
			}
		case verb == "EHLO" && secure != nil:
			fmt.Fprint(c, "250-here\r\n250 STARTTLS\r\n")
		case verb == "EHLO":
			fmt.Fprint(c, "250-here\r\n250 AUTH PLAIN\r\n")
		case verb == "STARTTLS":
			fmt.Fprint(c, "220 go\r\n")
			c, secure = tls.Server(c, secure), nil
			lines = bufio.NewScanner(c)
		case verb == "AUTH":
			fmt.Fprint(c, "235 ok\r\n")
		case strings.Contains(line, "nobody"):
			fmt.Fprint(c, "550 canary\r\n")
		case verb == "DATA":
			data = true
			fmt.Fprint(c, "354 go\r\n")
		case verb == "QUIT":
			fmt.Fprint(c, "221 bye\r\n")
			return seen.String()
		default:
			fmt.Fprint(c, "250 ok\r\n")
		}
	}
	return seen.String()
}

// TestMail: a private server without TLS gets a message if it is listed, and a server that
// is not private does not. A refusal for good ends the attempts.
func TestMail(t *testing.T) {
	addr, got := mailServer(t, nil)
	list := `
targets:
  post: {form: mail, server: "smtp://` + addr + `", from: rath@example.com, to: [a@example.com], private: [127.0.0.0/8]}
  none: {form: mail, server: "smtp://` + addr + `", from: rath@example.com, to: [nobody@example.com], private: true}
  shut: {form: mail, server: "smtp://` + addr + `", from: rath@example.com, to: [a@example.com]}
  open: {form: mail, server: "smtp://mail.example:25", from: rath@example.com, to: [a@example.com]}
rules:
  - {tenant: acme, on: [question], to: post}
  - {tenant: acme, on: [question], to: none}
  - {tenant: acme, on: [question], to: shut}
  - {tenant: acme, on: [question], to: open}
`
	s := senderOf(t, list, nil, map[string]string{"mail.example": "8.8.8.8"})
	s.world.Dial = func(ctx context.Context, network, at string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if at == "8.8.8.8:25" && err == nil {
			return public{c}, nil
		}
		return c, err
	}
	for to, want := range map[string]outcome{
		"post": {Sent: true},
		"none": {Final: true, Why: "it answered 550"},
		"shut": {Why: `its address is not on the Internet; list it at "private:" if it should receive notifications`},
		"open": {Why: errPlain.Error()},
	} {
		m := asked()
		m.To = to
		if out := s.send(t.Context(), m); out != want {
			t.Errorf("%s: %+v", to, out)
		}
		if to == "shut" {
			continue
		}
		if text := <-got; strings.Contains(text, "Message-ID: <notify-1@example.com>") != want.Sent || strings.Contains(text, "Subject") != want.Sent {
			t.Errorf("%s: the server saw\n%s", to, text)
		}
	}
}

// TestMailOverTLS: a server with STARTTLS gets the login and the message over TLS, and none
// of both if its certificate is not verified.
func TestMailOverTLS(t *testing.T) {
	example := httptest.NewUnstartedServer(nil) // it has a certificate of example.com
	example.StartTLS()
	defer example.Close()
	addr, got := mailServer(t, example.TLS)
	list := "targets:\n  ops: {form: mail, server: \"smtp://%s:25\", user: rath, password: env:KEY, from: rath@example.com, to: [a@example.com], private: true}\nrules:\n  - {on: [failed], to: ops}\n"
	for host, want := range map[string]outcome{"example.com": {Sent: true}, "other.example": {Why: "its certificate was not verified"}} {
		s := senderOf(t, fmt.Sprintf(list, host), map[string]string{"KEY": "canary"}, map[string]string{host: "8.8.8.8"})
		s.world.Roots = x509.NewCertPool()
		s.world.Roots.AddCert(example.Certificate())
		s.world.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return public{c}, err
		}
		if out := s.send(t.Context(), asked()); out != want {
			t.Errorf("%s: %+v", host, out)
		}
		login := base64.StdEncoding.EncodeToString([]byte("\x00rath\x00canary"))
		if text := <-got; strings.Contains(text, "AUTH PLAIN "+login) != want.Sent || strings.Contains(text, "Subject") != want.Sent {
			t.Errorf("%s: the server saw\n%s", host, text)
		}
	}
}

// public is a connection whose other end seems to be on the Internet.
type public struct{ net.Conn }

func (public) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(8, 8, 8, 8), Port: 25} }
