// Package conn is the connection to the NATS servers, and what all of Rath on NATS
// asks over it: one request and its retry, also while a stream elects a leader,
// messages stored and read, a stream followed as it grows, subjects served.
//
// A [Conn] reconnects by itself. A request whose answer only a lost connection could
// bring ends as [ErrCut]. What credentials lack is a [PermissionError], at the start
// by [Conn.Require] and later where the servers refuse a request.
//
// The package knows streams by their names only. Package streams says which there are.
//
// Files, the lowest first: options, backoff, faults (errors that pass by themselves),
// retry, pumps, permission, refusals (of requests under way), conn, attempt (of a
// request), request, reads, remove, publish, follow, service, credentials.
package conn
