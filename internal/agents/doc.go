// Package agents groups what an agent gets beside a model: instructions and skills
// of a workspace, tools of MCP servers, and notes.
package agents
