// Package toolserver keeps the tool servers that an execution has started, such as MCP
// servers.
//
// [Servers] starts a [Server] for each session and name at its first use, lists its tools,
// and makes them tools of an agent: [Found] is what the record of an agent's servers holds.
// A server that ends in a call is started again, within a bound. The execution is the
// [Host] of its servers.
package toolserver
