// Package limiter keeps the model calls of a fleet within what a key, or a model, may be
// asked in a minute.
//
// A [Limit] is shared by all nodes through one entry of a [Store], its ledger. A node
// takes a lease: so many requests and tokens, to be used within [Lease]. It takes it by
// compare-and-set, so that no two nodes take the same. What is leased counts against the
// limit until a window after the last moment at which it may have been used, so the
// servers see no window with more, wherever it begins. What a node did not use it returns when the
// lease ends; of a node that dies its leases run out.
//
// A [Concurrency] is the like for the calls of a tenant that are under way at one time. Its
// ledger is one for each tenant and says how many calls each node has or may begin. A node
// that does not say it again for [Hold] has none, and one that is known to have died, see
// [Set].Dead, none at once: of a node that is cut off calls may be under way that do not count.
//
// The times of a ledger are those of the servers that store it. A node learns from what it
// reads that these times have passed, and never takes a grant for run out before they say so:
// the clocks of nodes do not matter. Those of the servers may differ by a quarter of [Slack].
//
// Files, the lowest first: limiter, amount, store, ledger, clock, queue, limit, set, all, share, concurrency.
package limiter
