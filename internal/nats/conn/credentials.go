package conn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

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

// held are the rights of the user, of an answer with Permissions.
func (i *userInfo) held() *permission.Held {
	p := i.Data.Permissions
	held := &permission.Held{Responses: p.Responses != nil}
	held.Publish.Allow, held.Publish.Deny = p.Publish.Allow, p.Publish.Deny
	held.Subscribe.Allow, held.Subscribe.Deny = p.Subscribe.Allow, p.Subscribe.Deny
	return held
}

// info returns the server's record of these credentials, requested once per connection; nil
// if the server returns none.
func (c *Conn) info(ctx context.Context) (*userInfo, error) {
	l := c.link.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told {
		return l.info, nil
	}
	m, err := Retry(ctx, func(ctx context.Context) (*nats.Msg, error) {
		m, err := c.Request(ctx, &nats.Msg{Subject: permission.SubjectUserInfo})
		if errors.Is(err, nats.ErrNoResponders) {
			return nil, nil // a server without a system account
		}
		return m, err
	})
	if err != nil {
		return nil, fmt.Errorf("nats/conn: query the permissions of these credentials: %w", err)
	}
	if m != nil {
		l.info = &userInfo{}
		if err := json.Unmarshal(m.Data, l.info); err != nil {
			return nil, fmt.Errorf("nats/conn: query the permissions of these credentials: answer: %w", err)
		}
	}
	l.told = true
	return l.info, nil
}

// User returns the user that control requests for a tenant name: Options.As, or the user
// that the permissions of these credentials allow or, if they allow any, the server's name
// for them.
func (c *Conn) User(ctx context.Context, t session.Tenant) (string, error) {
	if c.o.As != "" {
		return c.o.As, messages.ValidUser(c.o.As)
	}
	info, err := c.info(ctx)
	if err != nil {
		return "", err
	}
	name := c.o.User
	if info != nil {
		name = info.Data.User
		if p := info.Data.Permissions; p != nil {
			allowed := permission.UsersOf(p.Publish.Allow, t)
			if len(allowed) > 0 && !slices.Contains(allowed, name) {
				name = allowed[0]
			}
		}
	}
	if name == "" {
		return messages.UserAnonymous, nil
	}
	if err := messages.ValidUser(name); err != nil {
		return "", fmt.Errorf("nats/conn: the NATS user %q cannot control runs: %w; its name is a token of the subjects that it publishes: rename it, or allow it a name with publish to %s%s.<name>.>", name, err, messages.ControlPrefix, t)
	}
	return name, nil
}

// MayPublish reports whether the credentials of a connection may publish to a subject. It
// returns true if the server does not report permissions: then publishing shows it. The
// error is ErrUnreachable without a connection.
func MayPublish(ctx context.Context, c *Conn, subject string) (bool, error) {
	if !c.NC.IsConnected() {
		return false, fmt.Errorf("%w: %s: the connection is lost and being restored; try again", ErrUnreachable, c.o.where())
	}
	info, err := c.info(ctx)
	if err != nil && !c.NC.IsConnected() {
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if err != nil || info == nil || info.Data.Permissions == nil {
		return err == nil, err
	}
	g := permission.Grant{Allow: []permission.Permission{{Op: permission.OpPublish, Subject: subject}}}
	return len(g.Missing(info.held())) == 0, nil
}

// Bound returns the tenant that these credentials bind a node to; "" if they are not of
// such a node.
func (c *Conn) Bound(ctx context.Context) (session.Tenant, error) {
	info, err := c.info(ctx)
	if err != nil || info == nil || info.Data.Permissions == nil {
		return "", err
	}
	return permission.HostOf(info.Data.Permissions.Publish.Allow), nil
}

// Require returns a *PermissionError if these credentials lack a permission that a role
// needs for the event streams of a place. It asks the server once.
func (c *Conn) Require(ctx context.Context, role permission.Role, place permission.Place) error {
	info, err := c.info(ctx)
	if err != nil {
		return err
	}
	if info == nil {
		c.Logger.Warn("the NATS servers do not report the permissions of these credentials; missing ones will fail later")
		return nil
	}
	p := info.Data.Permissions
	if p == nil {
		return nil // everything
	}
	g := permission.GrantOf(role, place)
	missing := g.Missing(info.held())
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
