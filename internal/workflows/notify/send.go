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
	Sent  bool
	Final bool // another attempt would fail, too
	Why   string
}

// sender sends to the targets of a list.
type sender struct {
	list  *List
	env   func(string) string
	world egress.Options // the network; its Private is that of a target
}

// send makes one attempt. It reads the secrets each time, because they may change.
func (s *sender) send(ctx context.Context, m *message) outcome {
	t := s.list.targets[m.To]
	if t == nil {
		return outcome{Why: "the list of the node that sends has no such target"}
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	world := s.world
	world.Private = t.private
	var values [2]string
	for i, ref := range []reference{t.url, t.secret} {
		var err error
		if ref == "" {
			continue
		}
		if values[i], err = listfile.Secret(s.env, s.list.File, string(ref), "target "+t.name); err != nil {
			return outcome{Why: err.Error()}
		}
	}
	if t.form == formMail {
		return sendMail(ctx, t, values[1], m, &world)
	}
	return post(ctx, t, values[0], values[1], m, &world)
}

// passing are the errors of a client that another attempt may not get.
var passing = []int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}

// post sends by HTTP.
func post(ctx context.Context, t *target, at, secret string, m *message, world *egress.Options) outcome {
	u, err := url.Parse(at)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || t.private == nil) {
		return outcome{Why: "its url is not https://…, or http://… of a private target"}
	}
	form := m.slack
	if t.form == formStandard {
		form = m.standard
	}
	body, err := form()
	if err != nil {
		return outcome{Why: err.Error()}
	}
	r := (&http.Request{
		Method: http.MethodPost, URL: u, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		Header: http.Header{"Content-Type": {"application/json"}, "User-Agent": {"rath"}},
	}).WithContext(ctx)
	if t.form == formStandard {
		now := time.Now()
		signature, err := sign(secret, m.id, now, body)
		if err != nil {
			return outcome{Why: err.Error()}
		}
		r.Header["Webhook-Id"], r.Header["Webhook-Signature"] = []string{m.id}, []string{signature}
		r.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	}
	// A transport alone follows no redirect. It has no proxy, and each connection is made to
	// a checked address.
	transport := &http.Transport{DialContext: world.Connect, TLSClientConfig: &tls.Config{RootCAs: world.Roots}, DisableKeepAlives: true, MaxResponseHeaderBytes: maxAnswer}
	resp, err := transport.RoundTrip(r)
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
