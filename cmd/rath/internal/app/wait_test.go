//go:build linux

package app

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// TestUntil reads what comes, to its end, and is not held by input that does not come.
func TestUntil(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	in, release, ends := Until(ctx, r)
	defer release()
	if !ends {
		t.Fatal("reads of a pipe do not end")
	}
	if _, err := w.WriteString("one"); err != nil {
		t.Fatal(err)
	}
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
	if _, err := w.WriteString("two"); err != nil {
		t.Fatal(err)
	}
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
