//go:build linux

package fleet

import (
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/messages"
)

// rights returns the permissions of the users of a fleet's servers. Nodes create the
// streams. As in production, they may remove only the streams in memory, which they
// recreate after the servers lost them; see permission.GrantOf. The operator may do
// everything.
func rights(r permission.Role, at permission.Place) *permission.Grant {
	switch r {
	case permission.RoleOperator:
		return nil
	case permission.RoleNode:
		g := permission.Grant{Role: r}
		deny := func(subject string) {
			g.Deny = append(g.Deny, permission.Permission{Op: permission.OpPublish, Subject: "$JS.API.STREAM." + subject})
		}
		deny("PURGE.>")
		for _, name := range []string{
			messages.StreamSnap, messages.StreamTasks, messages.StreamLineage, messages.StreamResult, messages.StreamDLQ,
			messages.StreamBlob, messages.StreamMemory, "KV_" + messages.BucketRegistry, "KV_" + messages.BucketAlias, "KV_" + messages.BucketAccess,
		} {
			deny("DELETE." + name)
			if name != messages.StreamLineage { // which relays derive again
				deny("MSG.DELETE." + name)
			}
		}
		for p := range uint32(maxPartitions) {
			deny("DELETE." + messages.EventStream(1, p))
		}
		return &g
	}
	return new(permission.GrantOf(r, at))
}

// maxPartitions is the maximum number of a fleet's event streams.
const maxPartitions = 64
