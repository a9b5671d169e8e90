// Package egress is the way out of a sandbox: a proxy in the node that lets commands reach
// the hosts which a run was allowed, and no others.
//
// A [Proxy] belongs to one sandbox. The sandbox brings it connections ([Proxy.Serve]) of
// commands, which have no other way out. It ends their TLS with an authority of its own,
// so that it sees each request: its host must be on the list, its method GET or HEAD where
// the list is read_only. It resolves the name itself, refuses what leads to a private,
// loopback, link-local or metadata address, and dials the very address that it looked at.
// Redirects are requests like any other. Where the node has a [Secret] for the host, the
// proxy puts it into the request, so that it never enters the sandbox, and masks it in the
// answer.
//
// [Proxy.Transport] is the same way out for requests that the node makes for a call.
//
// What was asked is kept as [Request]s until [Proxy.Take].
//
// Files, the lowest first: secret, options, address, mask, request, authority, connection, proxy,
// way.
package egress
