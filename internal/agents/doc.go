// Package agents groups the resources of an agent besides its model: a workspace's
// instructions and skills, tools of MCP servers, and notes.
package agents
