// Package access authenticates requests over HTTP. A request carries a bearer token or the
// cookie of a page session, and its handler finds the [Caller] in the request's context.
//
// Files, the lowest first: caller (who makes a request, and its rights).
package access
