// Package limiter keeps the model calls of a fleet within the rate limits of a key or a
// model.
//
// A [Limit] is shared by all nodes through one entry of a [Store], its ledger. A node
// takes a lease: a number of requests and tokens that it must use within [Lease]. It
// takes the lease by compare-and-set, so that no two nodes take the same amount. A
// leased amount counts against the limit until a window after the last moment at which
// it may have been used. No window of any server therefore exceeds the limit, wherever
// it begins. A node returns the unused amount when the lease ends; the leases of a dead
// node expire.
//
// A [Concurrency] limits the concurrent calls of a tenant. It has one ledger per tenant
// with the number of calls that each node has in flight or may start. The entry of a
// node expires [Hold] after its last renewal, and at once if the node is known to be
// dead, see [Set].Dead. Calls in flight at a disconnected node may therefore not count.
//
// The times of a ledger are those of the servers that store it. A node learns the time
// from the entries that it reads, and treats no grant as expired before that time: the
// clocks of nodes do not matter. The clocks of the servers may differ by a quarter of
// [Slack].
//
// Files, the lowest first: limiter, amount, store, ledger, clock, queue, limit, set, all, share, concurrency.
package limiter
