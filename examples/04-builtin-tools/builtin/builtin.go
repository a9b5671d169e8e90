// Package builtin is the fourth example of the ladder: the tools that every node has.
package builtin

import (
	_ "embed"

	"github.com/rathcluster/rath/examples/ladder"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/tool"
)

//go:embed model.txtar
var script []byte

// Rung is the example.
func Rung() ladder.Rung {
	return ladder.Rung{
		Dir: "04-builtin-tools", Name: "builtin", Does: "Writes a file, reads it and counts its lines.",
		New: newWorker, Input: "Write a haiku into haiku.txt and count its lines.", Script: script,
	}
}

// newWorker makes an agent with all built-in tools: commands, files, search, edits. They
// work in the session's sandbox. An agent runs until it answers without calling a tool.
// Each call is a step: its result is recorded with the state of the files, so a crash
// repeats no recorded call.
func newWorker(s flow.Info) (flow.Workflow, error) {
	return ladder.Prompted(s, &flow.Agent{
		Name: "worker", Prompt: "You are the worker. Use your tools.",
		Provider: llm.Provider{Model: s.Model}, Tools: tool.Builtins(),
		MaxRounds: 8, // model calls; an agent that needs more fails
	})
}
