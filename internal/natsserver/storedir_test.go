//go:build unix

package natsserver

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestClassify gives the errors that a full or read-only disk returns, which
// no test without root can make.
func TestClassify(t *testing.T) {
	tests := map[string]struct {
		cause error
		want  error
	}{
		"disk full":         {unix.ENOSPC, ErrStoreFull},
		"over quota":        {unix.EDQUOT, ErrStoreFull},
		"read-only":         {unix.EROFS, ErrStoreReadOnly},
		"not permitted":     {unix.EACCES, ErrStoreReadOnly},
		"operation refused": {unix.EPERM, ErrStoreReadOnly},
		"something else":    {unix.EIO, unix.EIO},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := classify("/some/dir", &fs.PathError{Op: "write", Path: "/some/dir/f", Err: tc.cause})
			if !errors.Is(err, tc.want) || !errors.Is(err, tc.cause) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if !strings.Contains(err.Error(), "/some/dir: ") || !strings.Contains(err.Error(), "directory") {
				t.Errorf("error %q names no directory or remedy", err)
			}
		})
	}
}
