// Package chain sends a call to its models, one after another, until one of them answers.
//
// A [Choice] is such a model. A [Chain] has the choices of one call: the servers of a
// pool, and their substitutes. Its Ask sends the requests of an [Asker], which is a model
// call or a request for vectors, within the [Retries] and the limits of a choice. A
// server whose breaker is open gets no requests. The package does not depend on
// executions or journals.
//
// Files, the lowest first: retry, choice, breaker, chain, embed.
package chain
