package blob_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rathcluster/rath/blob"
)

// Bytes are stored once and retrieved by their name.
func ExampleNewMemory() {
	ctx := context.Background()
	store := blob.NewMemory()
	ref, err := store.Put(ctx, strings.NewReader("a long tool output"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ref.Digest.Short(), ref.Size)

	r, err := store.Get(ctx, ref.Digest)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	fmt.Println(string(text), err)

	_, err = store.Get(ctx, blob.Sum([]byte("never stored")))
	fmt.Println(errors.Is(err, blob.ErrNotFound))
	// Output:
	// 570641afc192 18
	// a long tool output <nil>
	// true
}

// A reader detects wrong bytes at the end.
func ExampleVerify() {
	d := blob.Sum([]byte("what was stored"))
	r := blob.Verify(io.NopCloser(strings.NewReader("what came back")), d)
	_, err := io.ReadAll(r)
	fmt.Println(errors.Is(err, blob.ErrCorrupt))
	// Output: true
}
