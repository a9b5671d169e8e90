// Package conn is the connection to the NATS servers, and the operations over it that all
// of Rath on NATS uses: one request and its retry, also while a stream elects a leader,
// messages stored and read, a stream followed as it grows, subjects served.
//
// A [Conn] reconnects by itself. A request whose answer a lost connection can no longer
// bring ends with [ErrCut]. Missing permissions of the credentials are reported as a
// [PermissionError], at the start by [Conn.Require] and later where the servers reject a
// request.
//
// The package refers to streams by name only. Package streams defines them.
//
// Files, the lowest first: options, backoff, faults (errors that pass by themselves),
// retry, pumps, permission, refusals (of requests under way), conn, attempt (of a
// request), request, reads, remove, publish, follow, service, credentials.
package conn
