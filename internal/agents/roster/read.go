package roster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
)

// Folders are the locations of a workspace's agents, in order of precedence.
var Folders = []string{".agents/agents", ".claude/agents"}

// ErrAgents is returned for a directory of agents that cannot be used.
var ErrAgents = errors.New("these agents cannot be used")

// ReadDir reads the agents of an operator's directory, the files NAME.md directly in it,
// sorted by name. All of them must be valid. "" has none.
func ReadDir(dir string) ([]Agent, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; name the directory that has their files NAME.md", ErrAgents, err)
	}
	var all []Agent
	for _, e := range entries {
		if path.Ext(e.Name()) != ".md" || e.Name() == "README.md" || e.IsDir() {
			continue
		}
		file := filepath.Join(dir, e.Name())
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrAgents, err)
		}
		text, err := limited(f)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrAgents, err)
		}
		a, err := Parse(file, text)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrAgents, err)
		}
		if i := slices.IndexFunc(all, func(o Agent) bool { return o.Name == a.Name }); i >= 0 {
			return nil, fmt.Errorf("%w: %s and %s have the same name %q; change one", ErrAgents, all[i].File, file, a.Name)
		}
		if all = append(all, a); len(all) > MaxAgents {
			return nil, fmt.Errorf("%w: %s has more than %d", ErrAgents, dir, MaxAgents)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: %s has no file NAME.md", ErrAgents, dir)
	}
	slices.SortFunc(all, func(a, b Agent) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// limited reads and closes a file. The text has one byte more than allowed if the file is
// too long.
func limited(f io.ReadCloser) (string, error) {
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	return string(data), errors.Join(err, f.Close())
}

// OfWorkspace reads the agents of a head's files, sorted by name, and the reasons for
// those left out.
func OfWorkspace(ctx context.Context, b blob.Store, head blob.Digest) (all []Agent, told []string, err error) {
	tree, err := manifest.Load(ctx, b, head)
	if err != nil {
		return nil, nil, err
	}
	files := manifest.NewFiles(b, tree)
	for _, in := range Folders {
		for e := range tree.Entries() {
			if path.Dir(e.Path) != in || path.Ext(e.Path) != ".md" || e.Kind == manifest.Dir {
				continue
			}
			if e.Kind != manifest.File {
				told = append(told, e.Path+" is a link, which is not followed")
				continue
			}
			f, err := files.Get(ctx, e.Digest)
			if err != nil {
				return nil, nil, fmt.Errorf("read %s: %w", e.Path, err)
			}
			text, err := limited(f)
			if err != nil {
				return nil, nil, fmt.Errorf("read %s: %w", e.Path, err)
			}
			a, err := Parse(e.Path, text)
			switch {
			case err != nil:
				told = append(told, err.Error())
			case slices.ContainsFunc(all, func(o Agent) bool { return o.Name == a.Name }):
				told = append(told, e.Path+" has the name of another one")
			case len(all) == MaxAgents:
				return all, append(told, fmt.Sprintf("there are more than %d agents", MaxAgents)), nil
			default:
				all = append(all, a)
			}
			if len(told) == maxTold {
				return all, told, nil
			}
		}
	}
	slices.SortFunc(all, func(a, b Agent) int { return strings.Compare(a.Name, b.Name) })
	return all, told, nil
}
