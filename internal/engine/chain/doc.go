// Package chain asks the models that a call may ask, one after another, until one of them
// answers.
//
// A [Choice] is such a model. A [Chain] has the choices of one call: the servers of a pool,
// and the models that take their place. Its Ask sends the requests of an [Asker], which is
// a model call or a request for vectors, as the [Retries] of a choice allow and within its
// limits. A server whose breaker is open gets none. The package has no execution: it reads
// no journal and records nothing.
//
// Files, the lowest first: retry, choice, breaker, chain, embed.
package chain
