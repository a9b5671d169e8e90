//go:build linux

package fleet

import (
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/messages"
)

// rights returns what the users of a fleet's servers may do. Nodes set up the
// streams, and may remove nothing but what they may in production too, see
// permission.GrantOf: the streams in memory, which they make again when the servers
// lost them. The operator may do everything.
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
			messages.StreamBlob, messages.StreamMemory, "KV_" + messages.BucketRegistry, "KV_" + messages.BucketAlias,
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

// maxPartitions is how many event streams a fleet has at most.
const maxPartitions = 64
