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
	"strings"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/memory"
)

// What one call adds at most.
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

// addResources adds a file, or the files of a directory. All are read before the first is
// written.
func addResources(ctx context.Context, a *app.App, name, from, uri string) error {
	all, left, err := readResources(from, uri)
	if err != nil {
		return err
	}
	return inMemory(ctx, a, name, func(_ *app.System, m memory.Store) error {
		done, passages := []added{}, 0
		for _, r := range all {
			n, err := memory.AddResource(ctx, m, r.uri, r.text, memory.Origin{})
			if errors.Is(err, memory.ErrNotText) {
				left = append(left, r.file)
				continue
			}
			if err != nil && len(done) == 0 {
				return err
			}
			if err != nil {
				return fmt.Errorf("%w, after %s of %d: add them again", err, view.Counted(int64(len(done)), "file"), len(all))
			}
			done, passages = append(done, added{r.uri, n}), passages+n
		}
		if len(done) == 0 {
			return app.Fail(app.ExitUsage, "nothing to add, none of these is text: %s", strings.Join(clean(left), ", "))
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
		for _, file := range clean(left) {
			a.Remark("left out, it is not text: %s", file)
		}
		return nil
	})
}

func clean(names []string) []string {
	for i, name := range names {
		names[i] = term.Clean(name)
	}
	return names
}

// readResources reads the files of a path, within the limits, and names each below uri; ""
// is memory://resources/ and the last part of the path. left are those that are no file.
func readResources(from, uri string) (all []resource, left []string, err error) {
	whole, err := filepath.Abs(from)
	if err != nil {
		return nil, nil, err
	}
	if uri == "" {
		uri = root + "resources/" + filepath.Base(whole)
	}
	info, err := os.Stat(whole)
	if err != nil {
		return nil, nil, app.WithCode(app.ExitUsage, err)
	}
	dir, single := whole, ""
	if !info.IsDir() {
		if !info.Mode().IsRegular() {
			return nil, nil, app.Fail(app.ExitUsage, "%s is no file: name a file or a directory", from)
		}
		dir, single = filepath.Split(whole)
	}
	in, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, app.WithCode(app.ExitUsage, err)
	}
	defer in.Close()
	room := int64(maxResourceBytes)
	take := func(file, uri string) error {
		if len(all) == maxResourceFiles {
			return app.Fail(app.ExitUsage, "%s has more than %d files: add its directories one by one", from, maxResourceFiles)
		}
		f, err := in.Open(file)
		if err != nil {
			return err
		}
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
	if single != "" {
		err := take(single, uri)
		return all, nil, err
	}
	err = fs.WalkDir(in.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".":
			return nil
		case strings.HasPrefix(path.Base(name), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			left = append(left, name)
			return nil
		}
		return take(name, strings.TrimRight(uri, "/")+"/"+name)
	})
	if err == nil && len(all) == 0 {
		err = app.Fail(app.ExitUsage, "%s has no files to add", from)
	}
	return all, left, err
}
