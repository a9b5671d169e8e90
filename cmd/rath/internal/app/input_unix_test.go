//go:build unix

package app

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestReadInputOfPipe: a pipe without a writer is rejected at once, like a device.
func TestReadInputOfPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	must.Do(t, syscall.Mkfifo(pipe, 0o600))
	for _, name := range []string{pipe, "/dev/zero", t.TempDir()} {
		said := make(chan error, 1)
		go func() { _, err := (&App{}).ReadInput(name, 10); said <- err }()
		select {
		case err := <-said:
			if CodeOf(err) != ExitUsage || !strings.Contains(err.Error(), name+" is no regular file") {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s blocks", name)
			if f, err := os.OpenFile(name, os.O_RDWR, 0); err == nil { // ends it
				f.Close()
				<-said
			}
		}
	}
}
