// Package guide reads a workspace's instructions for agents: AGENTS.md, and skills in the
// public format of folders with a SKILL.md.
//
// It reads the files of a head and follows no link to the outside, so it runs no program
// and needs no sandbox. The author of the files wrote these texts, so [Guide.Text] quotes
// them with their origin as content, not as instructions.
package guide

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
)

// Limits of a guide.
const (
	MaxAgents = 32 << 10 // bytes of AGENTS.md in a prompt
	MaxBelow  = 20       // names of others that lie in directories
	MaxSkills = 50
	MaxListed = 16 << 10 // bytes of the names and descriptions of skills
	MaxSkill  = 32 << 10 // bytes of a SKILL.md
	MaxLooked = 100      // folders of each place that are read
	MaxFiles  = 1000     // of a skill
	MaxBytes  = 16 << 20 // of a skill's files together
)

// AgentsFile is the name of the file with a workspace's instructions for agents.
const AgentsFile = "AGENTS.md"

// Guide is a workspace's instructions for agents.
type Guide struct {
	Agents string // the text of AGENTS.md; "" is none
	Cut    int    // number of its bytes omitted
	Below  []string
	Skills []Skill
	Told   []string // the omitted parts, with the reasons
}

// reader reads files of one head.
type reader struct {
	ctx   context.Context
	tree  *manifest.Tree
	files *manifest.Files
}

func newReader(ctx context.Context, b blob.Store, head blob.Digest) (*reader, error) {
	t, err := manifest.Load(ctx, b, head)
	if err != nil {
		return nil, err
	}
	return &reader{ctx, t, manifest.NewFiles(b, t)}, nil
}

// Read returns the guide of a head's files.
func Read(ctx context.Context, b blob.Store, head blob.Digest) (Guide, error) {
	var g Guide
	r, err := newReader(ctx, b, head)
	if err != nil {
		return g, err
	}
	if err := r.agents(&g); err != nil {
		return g, err
	}
	return g, r.skills(&g)
}

// read returns at most most bytes of a file.
func (r *reader) read(e manifest.Entry, most int64) (string, error) {
	f, err := r.files.Get(r.ctx, e.Digest)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", e.Path, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, most))
	return string(data), errors.Join(err, f.Close())
}

// agents reads AGENTS.md of the root, and the names of those below.
func (r *reader) agents(g *Guide) error {
	for e := range r.tree.Entries() {
		if dir, name := path.Split(e.Path); name == AgentsFile && dir != "" && e.Kind == manifest.File && !hidden(dir) {
			if len(g.Below) == MaxBelow {
				g.Told = append(g.Told, fmt.Sprintf("more than %d files %s lie in directories", MaxBelow, AgentsFile))
				break
			}
			g.Below = append(g.Below, e.Path)
		}
	}
	e, ok := r.tree.Lookup(AgentsFile)
	if !ok {
		return nil
	}
	if e.Kind == manifest.Symlink { // often to the file of another agent's name
		to, ok := r.tree.Lookup(path.Clean(e.Target))
		if !ok || to.Kind != manifest.File {
			g.Told = append(g.Told, fmt.Sprintf("%s is a link to %q, which is no file of the workspace", AgentsFile, clip(e.Target)))
			return nil
		}
		e = to
	}
	if e.Kind != manifest.File {
		g.Told = append(g.Told, AgentsFile+" is a directory")
		return nil
	}
	text, err := r.read(e, MaxAgents)
	switch {
	case err != nil:
		return err
	case strings.IndexByte(text, 0) >= 0:
		g.Told = append(g.Told, AgentsFile+" is binary")
	default:
		g.Agents, g.Cut = strings.ToValidUTF8(text, "\ufffd"), int(e.Size)-len(text)
	}
	return nil
}

// hidden reports whether a directory or one of its parents holds dependencies or files of
// tools.
func hidden(dir string) bool {
	return slices.ContainsFunc(strings.Split(dir, "/"), func(name string) bool {
		return strings.HasPrefix(name, ".") || name == "node_modules" || name == "vendor"
	})
}

func clip(text string) string {
	if len(text) > 100 {
		text = text[:100] + "..."
	}
	return strings.ToValidUTF8(text, "")
}
