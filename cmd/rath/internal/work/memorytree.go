package work

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/memory"
)

// OpenRath keeps a memory as files: memory://user/a/b is user/a/b.md. Files without
// that ending are notes, too, except for the files that it derives from them.
const noteFile = ".md"

var derived = []string{".vec", ".meta.json"}

func memoryImport(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "import NAME DIR",
		Short: "Import a directory of notes in OpenRath's layout",
		Long: `Writes each file below user, agent, session and resources in DIR as a note:
user/a/b.md is memory://user/a/b. Existing notes of these names are replaced.
Blank files and OpenRath's derived files (.vec, .meta.json) are skipped.`,
		Example: "  rath memory import team ~/.openrath/memory",
		Args:    app.Exactly(2, "the name of a memory and a directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, err := os.OpenRoot(args[1])
			if err != nil {
				return app.WithCode(app.ExitUsage, err)
			}
			defer root.Close()
			ctx := cmd.Context()
			return inMemory(ctx, a, args[0], func(_ *app.System, m memory.Store) error {
				n, err := importTree(ctx, root.FS(), m)
				if err != nil {
					return fmt.Errorf("%s, after %s: %w", args[1], view.Counted(int64(n), "note"), err)
				}
				if n == 0 {
					return app.Fail(app.ExitUsage, "%s has no notes: want files below user, agent, session or resources", args[1])
				}
				if done, err := app.EmitOne(a, map[string]any{"memory": args[0], "notes": n}); done {
					return err
				}
				a.Remark("imported: %s", view.Counted(int64(n), "note"))
				return nil
			})
		},
	}
}

// importTree writes the notes of a tree and returns their number.
func importTree(ctx context.Context, tree fs.FS, m memory.Store) (n int, err error) {
	for _, scope := range []string{"agent", "resources", "session", "user"} {
		err := fs.WalkDir(tree, scope, func(name string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) && name == scope {
				return nil
			}
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			for _, ending := range derived {
				if strings.HasSuffix(name, ending) {
					return nil
				}
			}
			f, err := tree.Open(name)
			if err != nil {
				return err
			}
			text, err := io.ReadAll(io.LimitReader(f, memory.MaxText+1))
			if err = errors.Join(err, f.Close()); err != nil || strings.TrimSpace(string(text)) == "" {
				return err
			}
			if err := m.Write(ctx, root+strings.TrimSuffix(name, noteFile), string(text), memory.Origin{}); err != nil {
				return err
			}
			n++
			return nil
		})
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// exportTree writes notes as files of a directory, and replaces no file.
func exportTree(ctx context.Context, s *app.System, name, under, dir string) (n int, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	to, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer to.Close()
	err = s.Memory.Each(ctx, name, under, 0, func(uri, text string, _ memory.Origin) error {
		file := strings.TrimPrefix(uri, root) + noteFile
		if err := to.MkdirAll(path.Dir(file), 0o700); err != nil {
			return err
		}
		f, err := to.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return app.Fail(app.ExitUsage, "%s has %s already: name another directory", dir, file)
		}
		if err != nil {
			return err
		}
		n++
		_, err = f.WriteString(text)
		return errors.Join(err, f.Close())
	})
	return n, err
}
