package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/rathcluster/rath/internal/models/listfile"
	"github.com/rathcluster/rath/internal/sandbox/egress"
)

const (
	sendTimeout = 10 * time.Second
	// maxAnswer bounds the bytes of an answer that are read, and thrown away.
	maxAnswer = 64 << 10
)

// outcome is the result of one attempt. Why has no text of the target, its address or its
// secret: the journal of the run records it.
type outcome struct {
	Sent  bool   `json:"sent,omitempty"`
	Final bool   `json:"final,omitempty"` // another attempt would fail, too
	Why   string `json:"why,omitempty"`
}

// sender sends to the targets of a list.
type sender struct {
	list  *List
	env   func(string) string
	world egress.Options // the network; its Private is that of a target
}

// send makes one attempt.
func (s *sender) send(ctx context.Context, m *message) outcome {
	t := s.list.target(m.To)
	if t == nil || !s.list.allows(m.tenant, m.To) {
		return outcome{Why: "no rule of the tenant names the target in the list of the node that sends"}
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	var secret string
	var err error
	if t.secret != "" {
		if secret, err = listfile.Secret(s.env, s.list.File, t.secret, "secret of target "+t.name); err != nil {
			return outcome{Why: err.Error()}
		}
	}
	world := s.world
	world.Private = t.private
	if t.form == FormMail {
		return sendMail(ctx, t, secret, m, &world)
	}
	at, err := listfile.Secret(s.env, s.list.File, t.url, "url of target "+t.name)
	if err != nil {
		return outcome{Why: err.Error()}
	}
	return post(ctx, t, at, secret, m, &world)
}

// post sends by HTTP.
func post(ctx context.Context, t *target, at, secret string, m *message, world *egress.Options) outcome {
	u, err := url.Parse(at)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return outcome{Why: "its url is none: want https://…"}
	}
	if u.Scheme == "http" && t.private == nil {
		return outcome{Why: "its url is http, which is for private targets alone: want https"}
	}
	form := m.slack
	if t.form == FormStandard {
		form = m.standard
	}
	body, err := form()
	if err != nil {
		return outcome{Why: err.Error()}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(body))
	if err != nil {
		return outcome{Why: "its url is none: want https://…"}
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "rath")
	if t.form == FormStandard {
		now := time.Now()
		signature, err := sign(secret, m.id, now, body)
		if err != nil {
			return outcome{Why: err.Error()}
		}
		r.Header.Set("Webhook-Id", m.id)
		r.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
		r.Header.Set("Webhook-Signature", signature)
	}
	// The transport has no proxy, and checks the address of each connection.
	transport := &http.Transport{
		DialContext: world.Connect, TLSClientConfig: &tls.Config{RootCAs: world.Roots}, DisableKeepAlives: true,
		MaxResponseHeaderBytes: maxAnswer,
	}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		return outcome{Why: reason(err)}
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer) // the status has arrived
	_ = resp.Body.Close()
	code := resp.StatusCode
	why := fmt.Sprintf("it answered %d %s", code, http.StatusText(code))
	switch {
	case code >= 200 && code < 300:
		return outcome{Sent: true}
	case code >= 300 && code < 400:
		return outcome{Why: why + "; redirects are not followed: make the final address its url"}
	}
	return outcome{Final: code >= 400 && code < 500 && !slices.Contains(passing, code), Why: why}
}

// passing are the errors of a client that another attempt may not get.
var passing = []int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}

// reason describes an error without the address of the target, which the errors of
// libraries repeat.
func reason(err error) string {
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	var timeout net.Error
	switch {
	case egress.Refused(err):
		return "its address is not on the Internet; list it at \"private:\" if it should receive notifications"
	case errors.As(err, &name):
		return "its name was not resolved"
	case errors.As(err, &certificate):
		return "its certificate was not verified"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "it did not answer within " + sendTimeout.String()
	case errors.Is(err, syscall.ECONNREFUSED):
		return "it refused the connection"
	}
	return "the connection failed"
}
