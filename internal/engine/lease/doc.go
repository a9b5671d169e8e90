// Package lease provides executions with the sandboxes of their sessions: the terms of a
// sandbox, its directory at the session's workspace head, the services beside it, the new
// head after a call, and sandboxes that stay open between runs.
//
// Files, the lowest first: effect, putback, checkout, workspaces, service, lease, leases.
package lease
