package directory_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rathcluster/rath/internal/sandbox/directory"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestOwner: the files of a directory, and new files there, belong to its owner. A file
// with another name elsewhere, which may belong to another user, is unchanged, and so is
// the target of a symbolic link.
func TestOwner(t *testing.T) {
	owner := directory.Owner{UID: os.Geteuid(), GID: os.Getegid()}
	if owner.UID == 0 { // root may give files away
		owner = directory.Owner{UID: 1<<30 + 5, GID: 1<<30 + 6}
	}
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	must.Do(t, errors.Join(
		os.Mkdir(filepath.Join(dir, "d"), 0o755), os.WriteFile(filepath.Join(dir, "d", "f"), nil, 0o644), os.WriteFile(other, nil, 0o644),
		os.Link(other, filepath.Join(dir, "shared")), os.Symlink(other, filepath.Join(dir, "link")),
	))
	d, err := directory.Open(dir, &owner)
	must.Do(t, err)
	w, err := d.Create(t.Context(), "new/deep/made")
	if err == nil {
		_, err = w.Write([]byte("made\n"))
		err = errors.Join(err, w.Close())
	}
	must.Do(t, err)
	must.Report(t, d.Close())
	self := directory.Owner{UID: os.Geteuid(), GID: os.Getegid()}
	for name, want := range map[string]directory.Owner{
		".": owner, "d": owner, "d/f": owner, "link": owner, "new": owner, "new/deep": owner, "new/deep/made": owner, "shared": self, other: self,
	} {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		fi, err := os.Lstat(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if is := fi.Sys().(*syscall.Stat_t); int(is.Uid) != want.UID || int(is.Gid) != want.GID {
			t.Errorf("%s belongs to %d:%d, want %+v", name, is.Uid, is.Gid, want)
		}
	}
	if _, err := directory.Open(filepath.Join(dir, "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
	if _, err := directory.Open(filepath.Join(dir, "d", "f"), nil); err == nil {
		t.Error("a file is opened as a directory")
	}
}
