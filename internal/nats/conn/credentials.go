package conn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/permission"
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

// Require returns a *PermissionError if these credentials lack what a role
// needs for the event streams of a place. It asks the server once.
func (c *Conn) Require(ctx context.Context, role permission.Role, place permission.Place) error {
	m, err := Retry(ctx, func(ctx context.Context) (*nats.Msg, error) {
		m, err := c.Request(ctx, &nats.Msg{Subject: permission.SubjectUserInfo})
		if errors.Is(err, nats.ErrNoResponders) {
			return nil, nil // a server without a system account
		}
		return m, err
	})
	if err != nil {
		return fmt.Errorf("nats/conn: ask what these credentials may do: %w", err)
	}
	if m == nil {
		c.Logger.Warn("the NATS servers do not say what these credentials may do; what is missing shows later")
		return nil
	}
	var info userInfo
	if err := json.Unmarshal(m.Data, &info); err != nil {
		return fmt.Errorf("nats/conn: ask what these credentials may do: answer: %w", err)
	}
	p := info.Data.Permissions
	if p == nil {
		return nil // everything
	}
	held := permission.Held{Responses: p.Responses != nil}
	held.Publish.Allow, held.Publish.Deny = p.Publish.Allow, p.Publish.Deny
	held.Subscribe.Allow, held.Subscribe.Deny = p.Subscribe.Allow, p.Subscribe.Deny
	g := permission.GrantOf(role, place)
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
