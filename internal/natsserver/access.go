package natsserver

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

const (
	nodeUser     = "node"
	operatorUser = "operator"
	toolUser     = "tool"
	clientUser   = "default" // what clients without credentials are
)

func newPassword() string { return rand.Text() }

// kept is what the node of a server of its own may not do: remove what is
// stored. Everything else it sets up itself.
var kept = messages.Grant{Role: messages.RoleNode, Deny: []messages.Permission{
	{Op: messages.OpPublish, Subject: "$JS.API.STREAM.DELETE.>"},
	{Op: messages.OpPublish, Subject: "$JS.API.STREAM.PURGE.>"},
	{Op: messages.OpPublish, Subject: "$JS.API.STREAM.MSG.DELETE.>"},
}}

// accessConfig is the part of the server's configuration that says who may do
// what, see messages.Accounts.
func (o *Options) accessConfig() (string, error) {
	passwords := map[messages.Role]string{
		messages.RoleNode: o.NodePassword, messages.RoleOperator: o.OperatorPassword, messages.RoleTool: o.ToolPassword,
		// Nobody logs in as the default user by name.
		messages.RoleClient: newPassword(),
	}
	names := map[messages.Role]string{
		messages.RoleNode: nodeUser, messages.RoleOperator: operatorUser, messages.RoleTool: toolUser, messages.RoleClient: clientUser,
	}
	for _, p := range passwords {
		if strings.ContainsAny(p, "\"\\\n") {
			return "", fmt.Errorf("natsserver: a password may not contain quotes, backslashes or line ends")
		}
	}
	a := messages.Accounts{
		Tenants: []session.Tenant{session.DefaultTenant},
		Login: func(r messages.Role, _ session.Tenant) string {
			return fmt.Sprintf("user: %s, password: \"%s\"", names[r], passwords[r])
		},
		Grant: o.Grant, Anonymous: clientUser,
	}
	if a.Grant == nil {
		a.Grant = ownGrant
	}
	return a.Config(), nil
}

// ownGrant is what the users of a server may do whose node sets it up.
func ownGrant(r messages.Role, at messages.Place) *messages.Grant {
	switch r {
	case messages.RoleNode:
		return &kept
	case messages.RoleOperator:
		return nil
	}
	return new(messages.GrantOf(r, at))
}
