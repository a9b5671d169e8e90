package ladder

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// tell returns the outcome of an example: the messages of the session, its files, and the
// tree of sessions.
func tell(ctx context.Context, read records, blobs blob.Store, s session.Session) (string, error) {
	root := session.Key{Tenant: s.Key().Tenant, ID: s.Root()}
	g, err := graphOf(ctx, read, root)
	if err != nil {
		return "", err
	}
	tree, err := g.Tree(root, &lineage.TreeOptions{Width: treeWidth})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("SESSION\n")
	for _, c := range s.Chunks() {
		actor := cmp.Or(c.Origin().Agent, string(c.Kind()))
		if c.Kind() == session.ToolResult {
			actor = "  " + c.Name()
		}
		if c.Text() != "" {
			fmt.Fprintf(&b, "%s: %s\n", actor, indent(c.Text()))
		}
		for _, call := range c.Calls() {
			fmt.Fprintf(&b, "%s: calls %s %s\n", actor, call.Name, indent(call.Args))
		}
	}
	if head := s.Placement().Head; head != (blob.Digest{}) {
		if err := tellFiles(ctx, &b, blobs, head); err != nil {
			return "", err
		}
	}
	b.WriteString("\nTREE\n" + tree)
	return b.String(), nil
}

// indent puts the later lines of a text below the first one.
func indent(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

// tellFiles lists the files of a head with their contents.
func tellFiles(ctx context.Context, b *strings.Builder, blobs blob.Store, head blob.Digest) error {
	dir, err := os.MkdirTemp("", "files-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := workspace.Restore(ctx, blobs, head, filepath.Join(dir, "files")); err != nil {
		return err
	}
	began := false
	return fs.WalkDir(os.DirFS(filepath.Join(dir, "files")), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, "files", filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if !began {
			b.WriteString("\nFILES\n")
			began = true
		}
		fmt.Fprintf(b, "%s\n    %s\n", name, indent(string(data)))
		return nil
	})
}

var (
	elapsed = regexp.MustCompile(`"elapsed_ms":[0-9]+`)
	ids     = regexp.MustCompile(`(?m) +[0-9a-f]{8}$`)
	tokens  = regexp.MustCompile(`[0-9,]+ tokens`)
	resumes = regexp.MustCompile(`(?m)^.* resumes, attempt [0-9]+\n`)
	first   = regexp.MustCompile(`(?m)^(s1) .* resumes, attempt [0-9]+\n  `) // the line with the label of the tree
)

// Plain removes the parts of a story that differ between runs: times, ids of sessions,
// numbers of tokens (which depend on ids in prompts), and the line of a crash.
func Plain(story string) string {
	story = elapsed.ReplaceAllString(story, `"elapsed_ms":0`)
	story = tokens.ReplaceAllString(ids.ReplaceAllString(story, ""), "# tokens")
	for first.MatchString(story) {
		story = first.ReplaceAllString(story, "$1")
	}
	return resumes.ReplaceAllString(story, "")
}
