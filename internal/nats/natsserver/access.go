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
	routerUser   = "router"
	gatewayUser  = "gateway"
	clientUser   = messages.UserAnonymous // the user of clients without credentials
)

func newPassword() string { return rand.Text() }

// kept is the access of the node of its own server: everything except removing stored data.
// It may remove single messages from LINEAGE alone, which relays derive again; the streams
// not named here reject the removal themselves.
var kept = permission.Grant{Role: permission.RoleNode, Deny: []permission.Permission{
	{Op: permission.OpPublish, Subject: "$JS.API.STREAM.DELETE.>"},
	{Op: permission.OpPublish, Subject: "$JS.API.STREAM.PURGE.>"},
	{Op: permission.OpPublish, Subject: "$JS.API.STREAM.MSG.DELETE." + messages.StreamBlob},
	{Op: permission.OpPublish, Subject: "$JS.API.STREAM.MSG.DELETE." + messages.StreamDLQ},
	{Op: permission.OpPublish, Subject: "$JS.API.STREAM.MSG.DELETE." + messages.StreamResult},
	{Op: permission.OpPublish, Subject: "$JS.API.STREAM.MSG.DELETE." + messages.StreamSnap},
	{Op: permission.OpPublish, Subject: "$JS.API.STREAM.MSG.DELETE." + messages.StreamTasks},
	// Tokens and page sessions are for the web alone, which has a user of its own.
	{Op: permission.OpPublish, Subject: "$JS.API.DIRECT.GET.KV_" + messages.BucketAccess},
	{Op: permission.OpPublish, Subject: "$JS.API.DIRECT.GET.KV_" + messages.BucketAccess + ".>"},
	{Op: permission.OpPublish, Subject: "$JS.API.STREAM.MSG.GET.KV_" + messages.BucketAccess},
	{Op: permission.OpPublish, Subject: "$JS.API.CONSUMER.CREATE.KV_" + messages.BucketAccess + ".>"},
	{Op: permission.OpPublish, Subject: "$JS.API.CONSUMER.DURABLE.CREATE.KV_" + messages.BucketAccess + ".>"},
	{Op: permission.OpPublish, Subject: "$JS.API.CONSUMER.CREATE.KV_" + messages.BucketAccess},
	{Op: permission.OpPublish, Subject: "$KV." + messages.BucketAccess + ".>"},
	{Op: permission.OpSubscribe, Subject: "$KV." + messages.BucketAccess + ".>"},
}}

// accessConfig returns the part of the server's configuration with the permissions of all
// users, see permission.Accounts.
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
			{Role: permission.RoleRouter, Name: routerUser, Secret: o.RouterPassword},
			{Role: permission.RoleGateway, Tenant: t, Name: gatewayUser, Secret: o.GatewayPassword},
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
	if o.Private {
		a.Anonymous = ""
	}
	if a.Grant == nil {
		a.Grant = ownGrant
	}
	return a.Config(), nil
}

// ownGrant returns the permissions of the users of a server that its node sets up.
func ownGrant(r permission.Role, at permission.Place) *permission.Grant {
	switch r {
	case permission.RoleNode:
		return &kept
	case permission.RoleOperator:
		return nil
	}
	return new(permission.GrantOf(r, at))
}
