package local

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
)

// TestReadOnly: a directory that takes no files is told, with what to do. /sys takes none,
// of root neither.
func TestReadOnly(t *testing.T) {
	for _, dir := range []string{"/sys", "/sys/memory"} {
		_, err := Open(dir, nil)
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "mount it writable") {
			t.Errorf("a memory in %s: %v", dir, err)
		}
	}
}
