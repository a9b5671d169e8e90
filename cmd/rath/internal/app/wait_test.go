//go:build linux

package app

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestUntil reads input to its end, and is not blocked by silent input.
func TestUntil(t *testing.T) {
	r, w := must.Pair(os.Pipe())(t)
	defer r.Close()
	defer w.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	in, release, ends := Until(ctx, r)
	defer release()
	if !ends {
		t.Fatal("reads of a pipe do not end")
	}
	must.Get(w.WriteString("one"))(t)
	buf := make([]byte, 8)
	if n, err := in.Read(buf); err != nil || string(buf[:n]) != "one" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := in.Read(buf)
		read <- err
	}()
	why := errors.New("interrupted")
	cancel(why)
	if err := <-read; !errors.Is(err, why) {
		t.Errorf("a read without input ends with %v", err)
	}

	// The end of a file is one, and another reader is left alone.
	file, release, _ := Until(t.Context(), r)
	defer release()
	must.Get(w.WriteString("two"))(t)
	w.Close()
	if all, err := io.ReadAll(file); err != nil || string(all) != "two" {
		t.Errorf("%q, %v", all, err)
	}
	text := strings.NewReader("three")
	if other, release, ends := Until(t.Context(), text); other != text || ends {
		t.Errorf("%v ends: %t", other, ends)
	} else {
		release()
	}
}
