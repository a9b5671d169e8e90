package filelock_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rathcluster/rath/internal/platform/filelock"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestCloseWritten: a program that was just written runs, while this process starts others,
// which have it open for writing until they run their own programs.
func TestCloseWritten(t *testing.T) {
	// A start takes long, so that writes often coincide with one.
	long := slices.Repeat([]string{strings.Repeat("x", 100<<10)}, 15)
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := exec.Command("true", long...).Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer others.Wait()
	defer close(stop)
	program := filepath.Join(t.TempDir(), "program")
	for range 40 {
		f, err := os.OpenFile(program, os.O_WRONLY|os.O_CREATE, 0o755)
		must.Do(t, err)
		must.Get(f.Write(append([]byte("#!/bin/sh\necho mine\nexit\n"), make([]byte, 2<<20)...)))(t)
		must.Do(t, filelock.CloseWritten(f))
		out, err := exec.Command(program).Output()
		if err != nil || string(out) != "mine\n" {
			t.Fatalf("%v: %q", err, out)
		}
	}
}
