// Package mcp provides the tools of MCP servers: programs that speak the Model Context
// Protocol, over their standard input and output or over HTTP.
//
// A [List] names the servers of a node. [Server.Connect] starts a server, in a sandbox or
// on the host, or reaches it by its URL. [Conn.Tools] lists its tools, and [Conn.Call]
// calls one. The name of a tool is SERVER__TOOL.
//
// A server's annotations of its tools are hints. A tool that the server marks as read-only
// or idempotent is repeated after a crash. A call of any other tool waits for an operator.
package mcp
