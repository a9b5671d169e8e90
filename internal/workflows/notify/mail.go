package notify

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/smtp"
	"net/textproto"
	"net/url"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/egress"
)

// errPlain is the error of a mail server without TLS.
var errPlain = errors.New("it offers no STARTTLS, which only a private server may lack")

// sendMail sends by SMTP.
func sendMail(ctx context.Context, t *target, password string, m *message, world *egress.Options) outcome {
	u, err := url.Parse(t.server)
	if err != nil { // the list has checked it
		return outcome{Why: "its server is none"}
	}
	c, err := world.Connect(ctx, "tcp", u.Host)
	if err != nil {
		return outcome{Why: reason(err)}
	}
	defer func() { _ = c.Close() }()                         // Quit has ended it, or it has failed
	defer context.AfterFunc(ctx, func() { _ = c.Close() })() // also when the run ends
	err = converse(c, u, t, password, m, world)
	var answer *textproto.Error
	switch {
	case err == nil:
		return outcome{Sent: true}
	case errors.Is(err, errPlain):
		return outcome{Why: err.Error()}
	case errors.As(err, &answer): // its text is the server's
		return outcome{Final: answer.Code >= 500, Why: fmt.Sprintf("it answered %d", answer.Code)}
	}
	return outcome{Why: reason(cmp.Or(ctx.Err(), err))}
}

// converse gives the message to the server at a connection.
func converse(c net.Conn, u *url.URL, t *target, password string, m *message, world *egress.Options) error {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return err
	}
	secure := &tls.Config{ServerName: u.Hostname(), RootCAs: world.Roots}
	if u.Scheme == "smtps" {
		c = tls.Client(c, secure)
	}
	s, err := smtp.NewClient(c, u.Hostname())
	if err != nil {
		return err
	}
	if u.Scheme == "smtp" {
		if offered, _ := s.Extension("STARTTLS"); offered {
			err = s.StartTLS(secure)
		} else if egress.Public(at.Addr()) {
			err = errPlain
		}
	}
	if err == nil && t.user != "" {
		err = s.Auth(smtp.PlainAuth("", t.user, password, u.Hostname()))
	}
	if err == nil {
		err = s.Mail(t.from)
	}
	for i := 0; i < len(t.to) && err == nil; i++ {
		err = s.Rcpt(t.to[i])
	}
	if err != nil {
		return err
	}
	w, err := s.Data()
	if err != nil {
		return err
	}
	_, err = w.Write(m.mail(t.from, t.to, time.Now()))
	if err = errors.Join(err, w.Close()); err == nil {
		_ = s.Quit() // the server has accepted the message
	}
	return err
}
