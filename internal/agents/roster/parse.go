package roster

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rathcluster/rath/internal/agents/guide"
	"github.com/rathcluster/rath/tool"
)

// front is the front matter of an agent's file.
type front struct {
	Name        string    `yaml:"name"`
	Description string    `yaml:"description"`
	Tools       yaml.Node `yaml:"tools"`
	MCP         yaml.Node `yaml:"mcp"`
	Model       string    `yaml:"model"`
	Rounds      int       `yaml:"rounds"`
	Tokens      int64     `yaml:"tokens"`
	USD         float64   `yaml:"usd"`
	Color       string    `yaml:"color"` // of a coding assistant's menu
}

// Parse reads the text of an agent's file. The form is that of coding assistants: the
// names of their tools are accepted for ours, and a field with another meaning is an error.
func Parse(file, text string) (Agent, error) {
	a := Agent{File: file}
	refuse := func(format string, args ...any) (Agent, error) {
		return a, fmt.Errorf("agent file %s %s", file, fmt.Sprintf(format, args...))
	}
	switch {
	case len(text) > MaxFile:
		return refuse("has more than %d bytes", MaxFile)
	case strings.IndexByte(text, 0) >= 0:
		return refuse("is binary")
	}
	head, body, ok := guide.CutFront(text)
	if !ok {
		return refuse("does not begin with ---, name and description in YAML, and ---")
	}
	if len(head) > maxFront {
		return refuse("has a front matter of more than %d bytes", maxFront)
	}
	var said front
	if err := decodeFront(head, &said); err != nil {
		return refuse("has a front matter that cannot be used: %s", clip(err.Error()))
	}
	a.Name, a.Description, a.Prompt = said.Name, strings.Join(strings.Fields(said.Description), " "), strings.TrimSpace(body)
	switch {
	case !agentName.MatchString(a.Name) || len(a.Name) > 48:
		return refuse("has the name %q: want small letters, digits and - between them, at most 48", clip(a.Name))
	case a.Description == "" || len([]rune(a.Description)) > 1024:
		return refuse("has a description of %d characters, want 1 to 1024", len([]rune(a.Description)))
	case a.Prompt == "":
		return refuse("has no text after the front matter, which is the agent's prompt")
	case said.Rounds < 0 || said.Tokens < 0 || said.USD < 0 || said.USD > 1e6:
		return refuse("has a negative or too large limit: want rounds, tokens and usd from 0, for no limit of its own")
	case len(said.Model) > 128:
		return refuse("has a model with a name of %d bytes", len(said.Model))
	}
	if a.Rounds, a.Tokens, a.MicroUSD = said.Rounds, said.Tokens, int64(said.USD*1e6); said.Model != "inherit" {
		a.Model = said.Model
	}
	names, err := list(said.Tools)
	if err != nil {
		return refuse("has tools that cannot be read: %v", err)
	}
	for _, name := range names {
		own, problem := ownTool(name)
		if problem != "" {
			return refuse("names the tool %q: %s", clip(name), problem)
		}
		a.Tools = append(a.Tools, own...)
	}
	slices.Sort(a.Tools)
	a.Tools = slices.Compact(a.Tools)
	a.None = said.Tools.Kind != 0 && len(a.Tools) == 0
	if a.MCP, err = list(said.MCP); err != nil {
		return refuse("has MCP servers that cannot be read: %v", err)
	}
	return a, nil
}

// decodeFront decodes YAML strictly. References are refused: with them a small text has
// values of any size.
func decodeFront(head string, into *front) error {
	var tree yaml.Node
	if err := yaml.Unmarshal([]byte(head), &tree); err != nil {
		return err
	}
	if hasAlias(&tree) {
		return errors.New("it has references (*name), write the values out")
	}
	d := yaml.NewDecoder(strings.NewReader(head))
	d.KnownFields(true)
	return d.Decode(into)
}

func hasAlias(n *yaml.Node) bool {
	return n.Kind == yaml.AliasNode || slices.ContainsFunc(n.Content, hasAlias)
}

// list reads a list, or names between commas.
func list(n yaml.Node) (names []string, err error) {
	switch n.Kind {
	case 0:
		return nil, nil
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return nil, nil
		}
		names = strings.Split(n.Value, ",")
	default:
		if err := n.Decode(&names); err != nil {
			return nil, err
		}
	}
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	if len(names) > 64 {
		return nil, fmt.Errorf("there are %d, at most 64 are taken", len(names))
	}
	return names, nil
}

// assistants are the names that coding assistants have for our tools.
var assistants = map[string][]string{
	"Bash": {tool.RunShellCommand}, "Edit": {tool.Edit}, "Glob": {tool.Glob}, "Grep": {tool.Grep}, "LS": {tool.ListWorkspaceFiles},
	"MultiEdit": {tool.Edit}, "Read": {tool.ReadWorkspaceFile, tool.ViewImage}, "Skill": {tool.Skill}, "TodoWrite": {tool.Todo},
	"WebFetch": {tool.Fetch}, "Write": {tool.WriteWorkspaceFile},
}

// ownTool returns our names of a tool, or the problem with its name.
func ownTool(name string) (own []string, problem string) {
	switch own := assistants[name]; {
	case own != nil:
		return own, ""
	case strings.ContainsAny(name, "(*"):
		return nil, "an agent has a tool as a whole; write its name alone, and restrict its calls with the operator's rules"
	case name == "Task" || name == "Agent":
		return nil, "an agent in a file starts no other agents; remove it"
	case strings.HasPrefix(name, "mcp__"):
		return nil, "name the server instead, as in mcp: [github]"
	}
	return []string{name}, ""
}

var agentName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func clip(text string) string {
	if len(text) > 100 {
		text = text[:100] + "..."
	}
	return strings.ToValidUTF8(text, "")
}
