// Package egress is the only way out of a sandbox: a proxy in the node through which
// commands reach the hosts that a run is allowed to reach, and no others.
//
// A [Proxy] belongs to one sandbox. The sandbox passes it the connections of commands
// ([Proxy.Serve]), which have no other way out. The proxy terminates their TLS with an
// authority of its own, so that it sees each request: the host must be on the list, and the
// method GET or HEAD if the list is read_only. It resolves the name itself, rejects
// private, loopback, link-local and metadata addresses, and dials the very address that it
// checked. Redirects are requests like any other. If the node has a [Secret] for the host,
// the proxy adds it to the request, so that it never enters the sandbox, and masks it in
// the answer.
//
// [Proxy.Transport] applies the same rules to requests that the node makes for a call.
//
// Requests are kept as [Request]s until [Proxy.Take].
//
// Files, the lowest first: secret, options, address, mask, request, authority, connection, proxy,
// way.
package egress
