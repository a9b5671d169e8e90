package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/messages"
)

// A server tells a client that it lacks a permission, but not which of its
// requests that ends: it goes unanswered. Here the two are brought together.

// Permission is what a PermissionError says is missing.
type Permission = messages.Permission

// PermissionError says which permissions credentials lack. errors.Is(err,
// ErrDenied) holds.
type PermissionError struct {
	// Role is what they were checked for; "" for what a server refused.
	Role messages.Role
	// Missing is what they lack.
	Missing []Permission
	// Subject is what a server refused, with a single Missing.
	Subject string
	// User and Account are theirs, if the server told.
	User, Account string
}

// Error names each permission and what to do.
func (e *PermissionError) Error() string {
	if e.Subject != "" {
		p := e.Missing[0]
		text := fmt.Sprintf("%v: no permission to %s to %s", ErrDenied, p.Op, e.Subject)
		if p.Subject != e.Subject {
			text += " (" + p.Subject + ")"
		}
		return text + ": give it to this user; `rath provision --print-permissions` lists what each role needs"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v: these credentials%s lack permissions that the role %s needs", ErrDenied, e.who(), e.Role)
	for _, p := range e.Missing {
		fmt.Fprintf(&b, "\n\t%s: %s", p, p.Why)
	}
	fmt.Fprintf(&b, "\n\tgive them to the user; `rath provision --print-permissions --role %s` prints all of them", e.Role)
	return b.String()
}

func (e *PermissionError) who() string {
	if e.User == "" {
		return ""
	}
	return fmt.Sprintf(" (user %s, account %s)", e.User, e.Account)
}

// Is reports whether target is ErrDenied.
func (e *PermissionError) Is(target error) bool { return target == ErrDenied }

// violation reads what a server refuses.
var violation = regexp.MustCompile(`(?i)permissions violation for (publish|subscription)(?: with reply of| to) "([^"]+)"`)

// violated returns what an error of the connection refuses; nil for another
// error.
func violated(err error) *PermissionError {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	m := violation.FindStringSubmatch(err.Error())
	if m == nil {
		return nil
	}
	op := messages.OpPublish
	if strings.EqualFold(m[1], "subscription") {
		op = messages.OpSubscribe
	}
	return &PermissionError{Subject: m[2], Missing: []Permission{messages.Needed(op, m[2])}}
}

// refusals ends the requests whose subject the server refuses, and those whose
// connection is lost.
type refusals struct {
	mu      sync.Mutex
	waiting map[*asking]struct{}
	deaf    *PermissionError // answers do not reach this connection
}

// asking is a request under way.
type asking struct {
	subject string
	cancel  func()
	linked  bool // it ends with its connection
	err     error
}

// enter notes a request, which cancel ends. subject is what it publishes to, or
// the first tokens of that.
func (r *refusals) enter(subject string, cancel func()) *asking {
	return r.note(&asking{subject: subject, cancel: cancel})
}

// enterLinked is enter for a request whose answer only this connection can
// bring. It ends as errCut when that is lost.
func (r *refusals) enterLinked(subject string, cancel func()) *asking {
	return r.note(&asking{subject: subject, cancel: cancel, linked: true})
}

func (r *refusals) note(a *asking) *asking {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = map[*asking]struct{}{}
	}
	r.waiting[a] = struct{}{}
	if r.deaf != nil {
		a.err = r.deaf
		a.cancel()
	}
	return a
}

// leave ends the note and returns why the request was ended, or the error that
// it ended with.
func (r *refusals) leave(a *asking, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, a)
	if err != nil && a.err != nil {
		return a.err
	}
	return err
}

// refuse takes what a server refuses, and reports whether that ends a request.
func (r *refusals) refuse(e *PermissionError, inbox string) (told bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := e.Missing[0].Op == messages.OpSubscribe && strings.HasPrefix(e.Subject, inbox+".")
	if all {
		r.deaf = e
	} else if e.Missing[0].Op == messages.OpSubscribe {
		return false // who subscribes looks himself
	}
	for a := range r.waiting {
		if all || a.subject == e.Subject || strings.HasPrefix(e.Subject, a.subject+".") {
			a.err, told = e, true
			a.cancel()
		}
	}
	return told
}

// cut ends the requests that were sent over a connection that is lost.
func (r *refusals) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a := range r.waiting {
		if a.linked && a.err == nil {
			a.err = errCut
			a.cancel()
		}
	}
}

// forget is for a new connection: what it may do is seen anew.
func (r *refusals) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaf = nil
}

const (
	apiStreamInfo     = "$JS.API.STREAM.INFO."
	apiStreamCreate   = "$JS.API.STREAM.CREATE."
	apiStreamUpdate   = "$JS.API.STREAM.UPDATE."
	apiStreamDelete   = "$JS.API.STREAM.DELETE."
	apiStreamNames    = "$JS.API.STREAM.NAMES"
	apiConsumerInfo   = "$JS.API.CONSUMER.INFO."
	apiConsumerCreate = "$JS.API.CONSUMER.CREATE."
	apiConsumerDelete = "$JS.API.CONSUMER.DELETE."
	apiConsumerList   = "$JS.API.CONSUMER.LIST."
)

// api calls the server through the client library, for at most requestTimeout.
// subject is what that publishes to, or the first tokens of it.
func api[T any](ctx context.Context, c *Conn, subject string, call func(context.Context) (T, error)) (T, error) {
	return apiWithin(ctx, c, subject, requestTimeout, call)
}

func apiWithin[T any](ctx context.Context, c *Conn, subject string, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	a := c.refusals.enter(subject, cancel)
	v, err := call(ctx)
	return v, c.refusals.leave(a, err)
}

// inEffect returns when the server has taken a subscription, or says that it
// was refused.
func (c *Conn) inEffect(ctx context.Context, subject string) error {
	if err := c.flush(ctx); err != nil {
		return err
	}
	// What the server refuses it says before it answers the flush.
	e := violated(c.nc.LastError())
	if e != nil && e.Missing[0].Op == messages.OpSubscribe && e.Subject == subject {
		return e
	}
	return nil
}

// userInfo is the answer of a server to SubjectUserInfo.
type userInfo struct {
	Data struct {
		User        string `json:"user"`
		UserName    string `json:"user_name"`
		Account     string `json:"account"`
		AccountName string `json:"account_name"`
		Permissions *struct {
			Publish struct {
				Allow []string `json:"allow"`
				Deny  []string `json:"deny"`
			} `json:"publish"`
			Subscribe struct {
				Allow []string `json:"allow"`
				Deny  []string `json:"deny"`
			} `json:"subscribe"`
			Responses *struct{} `json:"responses"`
		} `json:"permissions"`
	} `json:"data"`
}

// Require returns a *PermissionError if these credentials lack what a role
// needs for the event streams of this connection. It asks the server once.
func (c *Conn) Require(ctx context.Context, role messages.Role) error {
	m, err := retry(ctx, func(ctx context.Context) (*nats.Msg, error) {
		m, err := c.request(ctx, &nats.Msg{Subject: messages.SubjectUserInfo})
		if errors.Is(err, nats.ErrNoResponders) {
			return nil, nil // a server without a system account
		}
		return m, err
	})
	if err != nil {
		return fmt.Errorf("natsbus: ask what these credentials may do: %w", err)
	}
	if m == nil {
		c.o.Logger.Warn("the NATS servers do not say what these credentials may do; what is missing shows later")
		return nil
	}
	var info userInfo
	if err := json.Unmarshal(m.Data, &info); err != nil {
		return fmt.Errorf("natsbus: ask what these credentials may do: answer: %w", err)
	}
	p := info.Data.Permissions
	if p == nil {
		return nil // everything
	}
	held := messages.Held{Responses: p.Responses != nil}
	held.Publish.Allow, held.Publish.Deny = p.Publish.Allow, p.Publish.Deny
	held.Subscribe.Allow, held.Subscribe.Deny = p.Subscribe.Allow, p.Subscribe.Deny
	g := messages.GrantOf(role, messages.Place{Generation: c.o.Generation, Partitions: c.o.Partitions})
	missing := g.Missing(&held)
	if len(missing) == 0 {
		return nil
	}
	first := func(names ...string) string {
		for _, n := range names {
			if n != "" {
				return n
			}
		}
		return ""
	}
	return &PermissionError{
		Role: role, Missing: missing, User: first(info.Data.UserName, info.Data.User), Account: first(info.Data.AccountName, info.Data.Account),
	}
}
