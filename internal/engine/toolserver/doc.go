// Package toolserver runs the tool servers of an execution, such as MCP servers.
//
// [Servers] starts a [Server] for each session and name at its first use, lists its
// tools, and makes them tools of an agent: [Found] is the record of an agent's servers. A
// server that ends during a call is restarted, within a bound. The execution is the
// [Host] of its servers.
package toolserver
