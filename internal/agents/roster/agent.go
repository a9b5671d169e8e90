package roster

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/rathcluster/rath/internal/agents/guide"
)

// Limits of agents in files.
const (
	MaxAgents = 32       // of one directory
	MaxFile   = 32 << 10 // bytes of an agent's file
	maxFront  = 8 << 10  // bytes of its front matter
	maxTold   = 100      // reasons for those left out
)

// Agent is an agent that a Markdown file describes: front matter in YAML, and the prompt.
type Agent struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	File        string   `json:"file"`
	Prompt      string   `json:"prompt"`
	Tools       []string `json:"tools,omitempty"` // nil is the tools of the agent that calls it
	None        bool     `json:"no_tools,omitempty"`
	MCP         []string `json:"mcp,omitempty"`
	Model       string   `json:"model,omitempty"`  // "" is the model of the agent that calls it
	Rounds      int      `json:"rounds,omitempty"` // model calls at most; 0 is the default
	Tokens      int64    `json:"tokens,omitempty"` // of one call of the agent at most; 0 is the rest of the run
	MicroUSD    int64    `json:"micro_usd,omitempty"`
}

// Revision is a digest of the agent: another text has another one.
func (a *Agent) Revision() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []any{a.Prompt, a.Tools, a.None, a.MCP, a.Model, a.Rounds, a.Tokens, a.MicroUSD}))
	return hex.EncodeToString(sum[:6])
}

// Quoted renders an agent of a workspace for the prompt that it works under. It is text of
// the workspace, never an instruction of the operator.
func (a *Agent) Quoted() string { return guide.Quote(a.File, a.Prompt) }
