package webtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// Silent is the status of a Receiver that reads requests and does not answer.
const Silent = 0

// Receiver is a server for notifications: HTTP that answers with a status, and SMTP.
type Receiver struct {
	http, mail net.Listener
	mu         sync.Mutex
	status     int
	changed    chan struct{} // closed with the next status
	got        []string      // the messages, with the form and the id first
}

// StartReceiver starts a receiver on 127.0.0.1 until the test ends.
func StartReceiver(t *testing.T) *Receiver {
	t.Helper()
	listen := func() net.Listener {
		return must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	}
	r := &Receiver{http: listen(), mail: listen(), status: http.StatusOK, changed: make(chan struct{})}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: r}
	var work sync.WaitGroup
	work.Go(func() { _ = server.Serve(r.http) })
	work.Go(func() {
		for {
			c, err := r.mail.Accept()
			if err != nil {
				return
			}
			r.add("mail " + takeMail(c))
		}
	})
	t.Cleanup(func() { _ = server.Close(); _ = r.mail.Close(); work.Wait() })
	return r
}

// URL is the address of its HTTP, and Mail the host and port of its SMTP.
func (r *Receiver) URL() string  { return "http://" + r.http.Addr().String() }
func (r *Receiver) Mail() string { return r.mail.Addr().String() }

// Answer sets the status of the answers from now on. Requests without an answer get it, too.
func (r *Receiver) Answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
	close(r.changed)
	r.changed = make(chan struct{})
}

// With returns the messages that contain all words: "STATUS PATH ID BODY" of a request,
// "mail LINES" of an e-mail.
func (r *Receiver) With(words ...string) (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range r.got {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) }) {
			all = append(all, text)
		}
	}
	return all
}

func (r *Receiver) add(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, text)
}

// ServeHTTP takes a message.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	r.mu.Lock()
	status, changed := r.status, r.changed
	r.mu.Unlock()
	r.add(fmt.Sprintf("%d %s %s %s", status, q.URL.Path, q.Header.Get("Webhook-Id"), body))
	if status == Silent {
		select {
		case <-changed:
		case <-q.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
}

// takeMail speaks SMTP as a server that accepts each message.
func takeMail(c net.Conn) string {
	defer func() { _ = c.Close() }()
	fmt.Fprint(c, "220 here\r\n")
	var text strings.Builder
	for lines := bufio.NewScanner(c); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
		switch line := lines.Text(); {
		case line == "DATA":
			fmt.Fprint(c, "354 go\r\n")
		case line == "QUIT":
			fmt.Fprint(c, "221 bye\r\n")
		case line == "." || strings.HasPrefix(line, "EHLO") || strings.HasPrefix(line, "MAIL") || strings.HasPrefix(line, "RCPT"):
			fmt.Fprint(c, "250 ok\r\n")
		}
	}
	return text.String()
}
