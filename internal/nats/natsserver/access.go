package natsserver

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

const (
	nodeUser     = "node"
	operatorUser = messages.UserOperator
	toolUser     = "tool"
	clientUser   = messages.UserAnonymous // what clients without credentials are
)

func newPassword() string { return rand.Text() }

// kept is what the node of a server of its own may not do: remove what is
// stored. Everything else it sets up itself. Single messages it may remove from LINEAGE
// alone, which relays derive again; the streams that are not named here refuse that
// themselves.
var kept = permission.Grant{Role: permission.RoleNode, Deny: []permission.Permission{
	{Op: permission.OpPublish, Subject: "$JS.API.STREAM.DELETE.>"},
	{Op: permission.OpPublish, Subject: "$JS.API.STREAM.PURGE.>"},
	{Op: permission.OpPublish, Subject: "$JS.API.STREAM.MSG.DELETE." + messages.StreamBlob},
	{Op: permission.OpPublish, Subject: "$JS.API.STREAM.MSG.DELETE." + messages.StreamDLQ},
	{Op: permission.OpPublish, Subject: "$JS.API.STREAM.MSG.DELETE." + messages.StreamResult},
	{Op: permission.OpPublish, Subject: "$JS.API.STREAM.MSG.DELETE." + messages.StreamSnap},
	{Op: permission.OpPublish, Subject: "$JS.API.STREAM.MSG.DELETE." + messages.StreamTasks},
}}

// accessConfig is the part of the server's configuration that says who may do
// what, see permission.Accounts.
func (o *Options) accessConfig() (string, error) {
	t := session.DefaultTenant
	a := permission.Accounts{
		Tenants: []session.Tenant{t},
		Users: append([]permission.User{
			{Role: permission.RoleNode, Name: nodeUser, Secret: o.NodePassword},
			{Role: permission.RoleOperator, Name: operatorUser, Secret: o.OperatorPassword},
			// No client logs in as the anonymous user by name.
			{Role: permission.RoleClient, Tenant: t, Name: clientUser, Secret: newPassword()},
			{Role: permission.RoleTool, Tenant: t, Name: toolUser, Secret: o.ToolPassword},
		}, o.Users...),
		Grant: o.Grant, Anonymous: clientUser,
	}
	for i := range a.Users {
		u := &a.Users[i]
		if u.Tenant != "" && !slices.Contains(a.Tenants, u.Tenant) {
			a.Tenants = append(a.Tenants, u.Tenant)
		}
		if strings.ContainsAny(u.Secret, "\"\\\n") {
			return "", fmt.Errorf("natsserver: a password may not contain quotes, backslashes or line ends")
		}
		if err := messages.ValidUser(u.Name); err != nil {
			return "", fmt.Errorf("natsserver: %w", err)
		}
		u.Secret = `password: "` + u.Secret + `"`
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
