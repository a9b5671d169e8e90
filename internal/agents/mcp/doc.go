// Package mcp has the tools of MCP servers: programs that speak the Model Context
// Protocol, over their standard input and output or over HTTP.
//
// A [List] says which servers a node has, by name. [Server.Connect] starts one, in a
// sandbox or beside it, or reaches it by its URL; [Conn.Tools] asks what it offers, and
// [Conn.Call] calls it. A tool is named SERVER__TOOL.
//
// What a server says of its tools is a hint. A tool that it calls read-only or idempotent
// is called again after a crash; any other one is not, and a person is asked.
package mcp
