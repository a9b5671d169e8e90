package work

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/workspace"
)

// Workspaces are the commands below "workspace".
func Workspaces(a *app.App) []*cobra.Command {
	return []*cobra.Command{workspaceLs(a), workspaceGet(a), workspaceMerge(a)}
}

// file is a path of a workspace as programs read it.
type file struct {
	manifest.Entry
	Mode string `json:"mode"`
}

func workspaceLs(a *app.App) *cobra.Command {
	limit := 0
	cmd := &cobra.Command{
		Use:   "ls NAME [PATH]",
		Short: "List the files of a session",
		Long: `Lists the files of a session, a version of one, a run, or the head of a
workspace (64 hexadecimal digits): all of them, or those below PATH.`,
		Example: "  rath workspace ls @last\n  rath workspace ls 7f3a:4 src --format jsonl | jq .digest",
		Args:    app.Between(1, 2, "a session and a path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return app.Usage(cmd, errors.New("--limit is a positive number"))
			}
			ctx := cmd.Context()
			below := "."
			if len(args) > 1 {
				below = path.Clean(args[1])
			}
			return a.With(ctx, func(s *app.System) error { return listFiles(ctx, a, s, args[0], below, limit) })
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 1000, "maximum number of paths")
	return cmd
}

func listFiles(ctx context.Context, a *app.App, s *app.System, name, below string, limit int) error {
	t, err := treeOf(ctx, s, name)
	if err != nil {
		return err
	}
	files, more := []file{}, 0
	for e := range t.Entries() {
		if below != "." && e.Path != below && !strings.HasPrefix(e.Path, below+"/") {
			continue
		}
		if len(files) == limit {
			more++
			continue
		}
		files = append(files, file{e, modeOf(e)})
	}
	if len(files) == 0 && below != "." {
		return app.Fail(app.ExitNotFound, "%s has no %q; %q lists its files", name, below, a.Hint("workspace", "ls", name))
	}
	done, err := app.Emit(a, files)
	if err != nil {
		return err
	}
	if !done {
		rows := make([][]string, len(files))
		for i, f := range files {
			p := f.Path
			switch f.Kind {
			case manifest.Dir:
				p += "/"
			case manifest.Symlink:
				p += " -> " + f.Target
			}
			size := ""
			if f.Kind == manifest.File {
				size = excerpt.Thousands(f.Size)
			}
			rows[i] = []string{f.Mode, size, term.Line(p, 400)}
		}
		a.Out.Rows([]string{"MODE", "BYTES", "PATH"}, rows)
	}
	if more > 0 {
		a.Remark("%s more; name a directory, or list more with --limit %d", view.Counted(int64(more), "path"), limit+more)
	}
	return nil
}

// modeOf returns git's mode of an entry; a tree is a directory.
func modeOf(e manifest.Entry) string {
	switch {
	case e.Kind == manifest.Dir:
		return "040000"
	case e.Kind == manifest.Symlink:
		return "120000"
	case e.Exec:
		return "100755"
	}
	return "100644"
}

// treeOf reads the list of files of a session, version, run or head.
func treeOf(ctx context.Context, s *app.System, name string) (*manifest.Tree, error) {
	head, err := reference.Head(ctx, s, name)
	if err != nil {
		return nil, err
	}
	t, err := manifest.Load(ctx, s.Blobs(s.Tenant()), head)
	return t, absent(err)
}

// absent explains the error of a head that is not in the store.
func absent(err error) error {
	if errors.Is(err, blob.ErrNotFound) {
		return app.Fail(app.ExitNotFound, "there are no files with this head in the store: %w", err)
	}
	return err
}

func workspaceGet(a *app.App) *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use:   "get NAME PATH",
		Short: "Write one file of a session",
		Long: `Writes the bytes of one file of a session, a version of one, a run, or the head
of a workspace to standard output, or to a new file. On a terminal control
sequences are removed.`,
		Example: "  rath workspace get @last slug.sh\n  rath workspace get 7f3a:4 out/report.pdf --out report.pdf",
		Args:    app.Exactly(2, "a session and a path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error { return getFile(ctx, a, s, args[0], path.Clean(args[1]), out) })
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "write to this file")
	return cmd
}

func getFile(ctx context.Context, a *app.App, s *app.System, name, p, out string) (err error) {
	t, err := treeOf(ctx, s, name)
	if err != nil {
		return err
	}
	e, ok := t.Lookup(p)
	switch {
	case !ok:
		return app.Fail(app.ExitNotFound, "%s has no %q; %q lists its files", name, p, a.Hint("workspace", "ls", name))
	case e.Kind == manifest.Symlink:
		return app.Fail(app.ExitUsage, "%q of %s is a symlink to %q; name that, if it is a file of the workspace", p, name, e.Target)
	case e.Kind != manifest.File:
		return app.Fail(app.ExitUsage, "%q of %s is a %s, not a file; %q lists its files", p, name, e.Kind, a.Hint("workspace", "ls", name, p))
	}
	rc, err := manifest.NewFiles(s.Blobs(s.Tenant()), t).Get(ctx, e.Digest)
	if err != nil {
		return absent(err)
	}
	defer func() { err = errors.Join(err, rc.Close()) }()
	if out == "" {
		if !a.Out.Terminal() {
			return copyFile(a.Out, rc, e)
		}
		if e.Size > maxShown {
			return app.Fail(app.ExitUsage, "%q has %s bytes, too many for a terminal: write them to a file with --out FILE", p, excerpt.Thousands(e.Size))
		}
		var data strings.Builder
		if err := copyFile(&data, rc, e); err != nil {
			return err
		}
		a.Out.Printf("%s", term.Clean(data.String()))
		return nil
	}
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return app.Fail(app.ExitConflict, "%s exists already: name another file, or move it away", out)
	}
	if err != nil {
		return err
	}
	if err := copyFile(f, rc, e); err != nil {
		return errors.Join(err, f.Close(), os.Remove(out))
	}
	return f.Close()
}

// copyFile copies a file to its end, where its digest is checked.
func copyFile(to io.Writer, from io.Reader, e manifest.Entry) error {
	n, err := io.Copy(to, io.LimitReader(from, e.Size+1))
	if err == nil && n != e.Size {
		err = fmt.Errorf("%w: %q has %d bytes, and %d in the manifest", manifest.ErrMalformed, e.Path, n, e.Size)
	}
	return err
}

// maxShown is the largest size of a file that is printed on a terminal.
const maxShown = 1 << 20

// choices are the ways to resolve a conflict, as written on the command line.
var choices = []string{string(manifest.TakeOurs), string(manifest.TakeTheirs), string(manifest.KeepBoth)}

// mergeOptions are the rules for conflicts.
type mergeOptions struct {
	base   string
	policy string
	decide []string // PATH=CHOICE
}

func workspaceMerge(a *app.App) *cobra.Command {
	var o mergeOptions
	cmd := &cobra.Command{
		Use:   "merge A B...",
		Short: "Merge the files of sessions",
		Long: `Merges the changes of B since the nearest common version into the files of A,
then those of further sessions, and prints the head of the result. No session
changes: start a task with the result by "submit --workspace". Texts are merged
by lines. Changes of both sides that exclude each other are a conflict; without
a decision for each conflict no file is merged.

ours keeps the merged files so far, theirs takes the incoming version, in a text
only for the conflicting lines; both keeps the second version beside the first,
as PATH.NAME.`,
		Example: `  rath workspace merge 7f3a 91bc
  rath workspace merge 7f3a 91bc --on-conflict ours --decide slug.sh=theirs
  rath workspace merge 7f3a 91bc 02de --base @last:1 --on-conflict both`,
		Args: app.Between(2, 64, "two sessions or more"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return app.Usage(cmd, err)
			}
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error { return mergeFiles(ctx, a, s, args, &o) })
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.base, "base", "", "common ancestor of all (default the nearest one)")
	fs.StringVar(&o.policy, "on-conflict", "", "decide conflicts: ours, theirs or both")
	fs.StringArrayVar(&o.decide, "decide", nil, "decide one conflict, as `PATH=CHOICE`; can be given again")
	return cmd
}

func (o *mergeOptions) check() error {
	if o.policy != "" && !slices.Contains(choices, o.policy) {
		return fmt.Errorf("--on-conflict %q: want one of %s", o.policy, strings.Join(choices, ", "))
	}
	for _, d := range o.decide {
		if i := strings.LastIndexByte(d, '='); i < 1 || !slices.Contains(choices, d[i+1:]) {
			return fmt.Errorf("--decide %q: want PATH= and one of %s", d, strings.Join(choices, ", "))
		}
	}
	return nil
}

// choice decides a conflict.
func (o *mergeOptions) choice(c manifest.Conflict) (manifest.Choice, string) {
	for _, d := range o.decide {
		if i := strings.LastIndexByte(d, '='); path.Clean(d[:i]) == c.Path {
			return manifest.Choice(d[i+1:]), "--decide"
		}
	}
	if o.policy == "" {
		return manifest.Undecided, ""
	}
	return manifest.Choice(o.policy), "--on-conflict"
}

// undecided rejects a decision about a path without a conflict.
func (o *mergeOptions) undecided(conflicts []manifest.Conflict) error {
	var paths []string
	for _, c := range conflicts {
		paths = append(paths, c.Path)
	}
	for _, d := range o.decide {
		name := path.Clean(d[:strings.LastIndexByte(d, '=')])
		if slices.Contains(paths, name) {
			continue
		}
		if len(paths) == 0 {
			return app.Fail(app.ExitUsage, "--decide %s: there is no conflict: leave it out", name)
		}
		slices.Sort(paths)
		return app.Fail(app.ExitUsage, "--decide %s: it is in no conflict; those are of %s", name, term.Line(some(slices.Compact(paths), 0), 200))
	}
	return nil
}

func mergeFiles(ctx context.Context, a *app.App, s *app.System, names []string, o *mergeOptions) error {
	ours, sides, err := sidesOf(ctx, s, names, o.base)
	if err != nil {
		return err
	}
	blobs := s.Blobs(s.Tenant())
	t, conflicts, err := manifest.Merge(ctx, blobs, ours, sides, o.choice)
	if err != nil {
		return absent(err)
	}
	if err := o.undecided(conflicts); err != nil {
		return err
	}
	open := 0
	for _, c := range conflicts {
		if c.Choice == manifest.Undecided {
			open++
		}
	}
	out := struct {
		Head      blob.Digest         `json:"head,omitzero"`
		Conflicts []manifest.Conflict `json:"conflicts"`
	}{Conflicts: append([]manifest.Conflict{}, conflicts...)}
	if open == 0 {
		if out.Head, err = t.Store(ctx, blobs); err != nil {
			return err
		}
		if err := workspace.Check(ctx, blobs, out.Head, workspace.Limits{}); err != nil {
			return err
		}
	}
	done, err := app.EmitOne(a, out)
	if err != nil {
		return err
	}
	if !done {
		tellConflicts(a, conflicts)
		if open == 0 {
			a.Out.Println(out.Head)
		}
	}
	if open > 0 {
		return app.Fail(app.ExitConflict, "%s and no file was merged: decide with --on-conflict, or one by one with --decide PATH=ours", openConflicts(open))
	}
	return nil
}

func openConflicts(n int) string {
	if n == 1 {
		return "1 conflict is open"
	}
	return fmt.Sprintf("%d conflicts are open", n)
}

// maxConflicts bounds the number of conflicts that are printed.
const maxConflicts = 20

// tellConflicts names conflicts, and shows those that are open.
func tellConflicts(a *app.App, all []manifest.Conflict) {
	for i, c := range all {
		if i == maxConflicts {
			a.Err.Println("conflict", len(all)-i, "more; --format json lists all")
			return
		}
		a.Err.Println(a.Err.Paint(term.Yellow, "conflict") + " " + term.Line(c.String(), 400))
		if c.Choice == manifest.Undecided {
			a.Err.Printf("%s", term.Clean(c.Detail))
		}
	}
}

// sidesOf finds the files of the names, and their common base.
func sidesOf(ctx context.Context, s *app.System, names []string, base string) (ours manifest.Side, sides []manifest.Side, err error) {
	trunk, head, err := reference.Files(ctx, s, names[0])
	if err != nil {
		return ours, nil, err
	}
	var from blob.Digest
	if base != "" {
		if from, err = reference.Head(ctx, s, base); err != nil {
			return ours, nil, err
		}
	}
	ours = manifest.Side{Name: sideName(names[0], head), Head: head}
	for _, name := range names[1:] {
		v, head, err := reference.Files(ctx, s, name)
		if err != nil {
			return ours, nil, err
		}
		side := manifest.Side{Name: sideName(name, head), Base: from, Head: head}
		if base == "" {
			at, ok := reference.Ancestor(trunk, v)
			if !ok {
				return ours, nil, app.Fail(app.ExitUsage, "%s and %s have no common session: name their ancestor with --base, %q for no files", names[0], name, reference.None)
			}
			old, err := s.At(ctx, at)
			if err != nil {
				return ours, nil, err
			}
			side.Base = old.Placement().Head
		}
		sides = append(sides, side)
	}
	return ours, sides, nil
}

// sideName returns a name for files that can be part of a file's name.
func sideName(name string, head blob.Digest) string {
	if len(name) > 40 || strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(sideLetters, r) }) {
		return head.Short()
	}
	return name
}

const sideLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
