// Package mcptest is MCP servers for tests: one that does as it should, and some that
// print garbage, hang, die during a call, or offer too much.
//
// A test binary becomes one: [Main] at the start of TestMain, and [Command] for the list.
package mcptest
