package natsserver

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/nats/permission"
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
var kept = permission.Grant{Role: permission.RoleNode, Deny: []permission.Permission{
	{Op: permission.OpPublish, Subject: "$JS.API.STREAM.DELETE.>"},
	{Op: permission.OpPublish, Subject: "$JS.API.STREAM.PURGE.>"},
	{Op: permission.OpPublish, Subject: "$JS.API.STREAM.MSG.DELETE.>"},
}}

// accessConfig is the part of the server's configuration that says who may do
// what, see permission.Accounts.
func (o *Options) accessConfig() (string, error) {
	passwords := map[permission.Role]string{
		permission.RoleNode: o.NodePassword, permission.RoleOperator: o.OperatorPassword, permission.RoleTool: o.ToolPassword,
		// No client logs in as the default user by name.
		permission.RoleClient: newPassword(),
	}
	names := map[permission.Role]string{
		permission.RoleNode: nodeUser, permission.RoleOperator: operatorUser, permission.RoleTool: toolUser, permission.RoleClient: clientUser,
	}
	for _, p := range passwords {
		if strings.ContainsAny(p, "\"\\\n") {
			return "", fmt.Errorf("natsserver: a password may not contain quotes, backslashes or line ends")
		}
	}
	a := permission.Accounts{
		Tenants: []session.Tenant{session.DefaultTenant},
		Login: func(r permission.Role, _ session.Tenant) string {
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
func ownGrant(r permission.Role, at permission.Place) *permission.Grant {
	switch r {
	case permission.RoleNode:
		return &kept
	case permission.RoleOperator:
		return nil
	}
	return new(permission.GrantOf(r, at))
}
