package local_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
)

// TestWrittenIsRun: a command runs a program that was written right before, while this
// process starts others, which have the file open for writing until they execute their own
// programs.
func TestWrittenIsRun(t *testing.T) {
	dir := t.TempDir()
	b := must.Get(local.New(&local.Options{State: t.TempDir()}).Open(t.Context(), sandbox.Spec{Dir: dir}))(t)
	defer b.Close()
	must.Get(b.Exec(t.Context(), sandbox.Cmd{Argv: []string{"true"}}))(t)
	// As in a host, the lowest numbers are open files that stay open.
	for range 16 {
		f := must.Get(os.Open(os.DevNull))(t)
		defer f.Close()
	}
	// Both a write and a start take long, so that they often coincide.
	program := append([]byte("#!/bin/sh\necho mine\nexit\n"), make([]byte, 2<<20)...)
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
	for range 30 {
		w, err := b.Files().Create(t.Context(), "program")
		must.Do(t, err)
		must.Get(w.Write(program))(t)
		must.Do(t, w.Close())
		e, err := b.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "chmod +x program && ./program"}})
		if err != nil || string(e.Stdout.Bytes()) != "mine\n" {
			t.Fatalf("%v: %s %d %q %q", err, e.Ended, e.Code, e.Stdout.Bytes(), e.Stderr.Bytes())
		}
	}
}
