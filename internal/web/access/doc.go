// Package access authenticates requests over HTTP and limits them. A program's request
// carries a bearer token, a browser's the cookie of a page session. Both are entries of one
// bucket, as SHA-256 of their secrets: the operator writes tokens and gateways write page
// sessions. The handler of a request finds its [Caller] in the context.
//
//	g := access.New(&access.Options{Store: access.NewStore(streams), Connect: connect, URL: u})
//	go g.Run(ctx)
//	http.ListenAndServe(address, g.Handler(&access.Parts{API: api, Pages: pages}))
//
// A [Gateway] has the bucket in memory and reads its changes from the leader each second.
// So a revocation ends requests and streams on every gateway within two seconds, and a
// gateway that cannot read answers 503.
//
// Files, the lowest first: caller (who makes a request, and its rights), secret (the text
// of tokens and cookies), store (the bucket), view (the bucket in memory), pool (a
// connection for each tenant), rates (limits), gateway (the handler), login (page sessions
// and login codes), oidc (identities of a provider), server (the bounds of connections).
package access
