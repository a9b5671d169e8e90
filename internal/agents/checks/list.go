package checks

import (
	"fmt"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rathcluster/rath/internal/files/ignore"
	"github.com/rathcluster/rath/internal/models/listfile"
)

// Limits of a list.
const (
	maxChecks      = 20
	maxTimeout     = 5 * time.Minute
	defaultTimeout = 30 * time.Second
)

// List is an operator's list of checks. It does not change, and is safe for concurrent use.
type List struct{ checks []check }

// check is a command for changed files.
type check struct {
	files   *ignore.Rules // patterns in the form of .gitignore
	command string
	timeout time.Duration
}

// Read reads a list from a file. "" has none, and its List is nil.
func Read(file string) (*List, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("checks: %w", err)
	}
	return Parse(file, data)
}

// Parse reads a list. Its errors name file, line and remedy.
func Parse(file string, data []byte) (*List, error) {
	p, top, err := listfile.Parse(file, "checks", data)
	if err != nil {
		return nil, err
	}
	l := &List{}
	p.Fields(top, "the list", map[string]func(*yaml.Node){"checks": func(n *yaml.Node) {
		if n.Kind != yaml.SequenceNode || len(n.Content) == 0 || len(n.Content) > maxChecks {
			p.Fail(n.Line, "checks: want a list of 1 to %d, such as \"- {files: [\"*.go\"], command: go vet ./...}\"", maxChecks)
			return
		}
		for _, n := range n.Content {
			l.checks = append(l.checks, checkOf(p, n))
		}
	}})
	if err := p.Err(); err != nil {
		return nil, err
	}
	if len(l.checks) == 0 {
		return nil, fmt.Errorf("%s: there are no checks; put them below \"checks:\"", file)
	}
	return l, nil
}

func checkOf(p *listfile.Parser, n *yaml.Node) check {
	c, before := check{timeout: defaultTimeout}, p.Mistakes()
	p.Fields(n, "check", map[string]func(*yaml.Node){
		"files": func(n *yaml.Node) {
			var err error
			if c.files, err = ignore.Parse(p.Texts(n, "files")); err != nil {
				p.Fail(n.Line, "files: %v", err)
			}
		},
		"command": func(n *yaml.Node) { c.command = p.Text(n, "command") },
		"timeout": func(n *yaml.Node) {
			var err error
			if c.timeout, err = time.ParseDuration(n.Value); err != nil || c.timeout <= 0 || c.timeout > maxTimeout {
				p.Fail(n.Line, "timeout: %q: want a time up to %s, such as 30s", n.Value, maxTimeout)
			}
		},
	})
	if p.Mistakes() == before && (c.files == nil || c.files.Len() == 0 || c.command == "") {
		p.Fail(n.Line, "check: want files and a command, such as {files: [\"*.go\"], command: go vet ./...}")
	}
	return c
}
