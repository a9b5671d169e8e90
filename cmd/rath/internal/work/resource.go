package work

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/memory"
)

// Limits of one call.
const (
	maxResourceFiles = 1000
	maxResourceBytes = 16 << 20
)

// added is a resource as programs read it.
type added struct {
	URI      string `json:"uri"`
	Passages int    `json:"passages"`
}

// resource is a file to add.
type resource struct {
	file string
	uri  string
	text []byte
}

// leftFile is a skipped file and the reason.
type leftFile struct{ file, why string }

// String returns the reason and the name, with unprintable characters escaped.
func (l leftFile) String() string {
	name := l.file
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		name = strconv.Quote(name)
	}
	return l.why + ": " + name
}

// addResources adds a file, or the files of a directory. It reads all of them and
// checks their names before it writes the first.
func addResources(ctx context.Context, a *app.App, name, from, uri string) error {
	all, left, err := readResources(from, uri)
	if err != nil {
		return err
	}
	return inMemory(ctx, a, name, func(_ *app.System, m memory.Store) error {
		done, passages := []added{}, 0
		for _, r := range all {
			n, err := memory.AddResource(ctx, m, r.uri, r.text, memory.Origin{})
			switch {
			case errors.Is(err, memory.ErrNotText):
				left = append(left, leftFile{r.file, "it is not text"})
			case err != nil && len(done) == 0:
				return err
			case err != nil:
				return fmt.Errorf("%w, after %s of %d: add them again", err, view.Counted(int64(len(done)), "file"), len(all))
			case n == 0: // its former content is removed
				left = append(left, leftFile{r.file, "it is empty"})
			default:
				done, passages = append(done, added{r.uri, n}), passages+n
			}
		}
		slices.SortStableFunc(left, func(a, b leftFile) int { return strings.Compare(a.file, b.file) })
		if len(done) == 0 {
			return nothingAdded(from, left)
		}
		emitted, err := app.Emit(a, done)
		if err != nil {
			return err
		}
		if !emitted {
			for _, r := range done {
				a.Out.Println(term.Clean(r.URI))
			}
			a.Remark("added: %s of %s", view.Counted(int64(passages), "passage"), view.Counted(int64(len(done)), "file"))
		}
		for _, l := range left {
			a.Remark("left out, %s", l)
		}
		return nil
	})
}

func nothingAdded(from string, left []leftFile) error {
	if len(left) == 0 {
		return app.Fail(app.ExitUsage, "%s has no files to add", from)
	}
	var all []string
	for _, l := range left {
		all = append(all, l.String())
	}
	return app.Fail(app.ExitUsage, "no file to add, %s", strings.Join(all, "; "))
}

// irregular names the type of an entry of a directory that is no file.
func irregular(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "it is a link"
	case mode&fs.ModeNamedPipe != 0:
		return "it is a pipe"
	case mode&fs.ModeSocket != 0:
		return "it is a socket"
	}
	return "it is a device"
}

// canName reports whether the passages of a resource can have names below a URI.
func canName(uri string) bool {
	_, err := notebook.ParseURI(uri + "/000000")
	return err == nil
}

// readResources reads the files of a path, within the limits, and names each below uri;
// "" is memory://resources/ and the last part of the path. The path may be a link;
// links below it are not followed. left are the entries that are no files, or whose
// names no URI can have.
func readResources(from, uri string) (all []resource, left []leftFile, err error) {
	whole, err := filepath.Abs(from)
	if err != nil {
		return nil, nil, err
	}
	if uri == "" {
		uri = root + "resources/" + filepath.Base(whole)
		if !canName(uri) {
			return nil, nil, app.Fail(app.ExitUsage, "the name of %q cannot be in a URI: give one with --uri %sresources/NAME", from, root)
		}
	}
	if _, err := notebook.ParseDir(strings.TrimRight(uri, "/")); err != nil {
		return nil, nil, noted(err)
	}
	info, err := os.Stat(whole)
	if err != nil {
		return nil, nil, app.WithCode(app.ExitUsage, err)
	}
	room := int64(maxResourceBytes)
	take := func(f io.ReadCloser, file, uri string) error {
		text, err := io.ReadAll(io.LimitReader(f, memory.MaxResource+1))
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		if len(text) > memory.MaxResource {
			return app.Fail(app.ExitUsage, "%s has more than %d bytes: split it, or add the others one by one", file, memory.MaxResource)
		}
		if room -= int64(len(text)); room < 0 {
			return app.Fail(app.ExitUsage, "%s has more than %d bytes in all: add its directories one by one", from, maxResourceBytes)
		}
		all = append(all, resource{file, uri, text})
		return nil
	}
	if !info.IsDir() {
		f, err := app.OpenRegular(from)
		if err != nil {
			return nil, nil, err
		}
		err = take(f, filepath.Base(whole), uri)
		return all, nil, err
	}
	in, err := os.OpenRoot(whole)
	if err != nil {
		return nil, nil, app.WithCode(app.ExitUsage, err)
	}
	defer in.Close()
	err = fs.WalkDir(in.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		to := strings.TrimRight(uri, "/") + "/" + name
		switch {
		case strings.HasPrefix(path.Base(name), "."):
		case !canName(to):
			left = append(left, leftFile{name, "a URI cannot have its name"})
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			left = append(left, leftFile{name, irregular(d.Type())})
		case len(all) == maxResourceFiles:
			return app.Fail(app.ExitUsage, "%s has more than %d files: add its directories one by one", from, maxResourceFiles)
		default:
			f, err := in.Open(name)
			if err != nil {
				return err
			}
			return take(f, name, to)
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	if err == nil && len(all) == 0 {
		err = nothingAdded(from, left)
	}
	return all, left, err
}
