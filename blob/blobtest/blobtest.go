// Package blobtest is the suite that every blob.Store must pass.
//
// A store's own tests call [TestStore] with a function that makes an empty store. A
// store must test its guarantees beyond the contract (durability, tenants) itself.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// corrupter is implemented by stores whose tests can damage stored bytes: Corrupt makes
// the store hold data under d. The suite then also checks that the store detects the
// damage.
type corrupter interface {
	Corrupt(d blob.Digest, data []byte) error
}

// TestStore checks the contract of blob.Store. newStore returns an empty
// store; it is called once per subtest and may register its own cleanup.
func TestStore(t *testing.T, newStore func() blob.Store) {
	t.Helper()
	t.Run("round trip", func(t *testing.T) { testRoundTrip(t, newStore()) })
	t.Run("put is idempotent", func(t *testing.T) { testIdempotent(t, newStore()) })
	t.Run("absent digest", func(t *testing.T) { testAbsent(t, newStore()) })
	t.Run("large blob", func(t *testing.T) { testLarge(t, newStore()) })
	t.Run("failing reader stores nothing", func(t *testing.T) { testFailingReader(t, newStore()) })
	t.Run("ended context", func(t *testing.T) { testContext(t, newStore()) })
	t.Run("caller's buffer", func(t *testing.T) { testBuffer(t, newStore()) })
	t.Run("two readers", func(t *testing.T) { testTwoReaders(t, newStore()) })
	t.Run("concurrency", func(t *testing.T) { testConcurrency(t, newStore()) })
	s := newStore()
	if c, ok := s.(corrupter); ok {
		t.Run("corrupt bytes", func(t *testing.T) { testCorrupt(t, s, c) })
	}
}

func put(t *testing.T, s blob.Store, data []byte) blob.Ref {
	t.Helper()
	ref, err := s.Put(t.Context(), bytes.NewReader(data))
	if err != nil {
		t.Fatalf("Put of %d bytes: %v", len(data), err)
	}
	if want := (blob.Ref{Digest: blob.Sum(data), Size: int64(len(data))}); ref != want {
		t.Fatalf("Put returned %v, want %v", ref, want)
	}
	return ref
}

func get(t *testing.T, s blob.Store, d blob.Digest) []byte {
	t.Helper()
	rc, err := s.Get(t.Context(), d)
	if err != nil {
		t.Fatalf("Get(%s): %v", d.Short(), err)
	}
	data, err := io.ReadAll(rc)
	if err := errors.Join(err, rc.Close()); err != nil {
		t.Fatalf("reading %s: %v", d.Short(), err)
	}
	return data
}

func testRoundTrip(t *testing.T, s blob.Store) {
	for _, data := range [][]byte{{}, {0}, []byte("hello"), []byte("\xff\xfe\x00binary\n"), bytes.Repeat([]byte("abc"), 50_000)} {
		ref := put(t, s, data)
		if diff := cmp.Diff(len(data), len(get(t, s, ref.Digest))); diff != "" {
			t.Errorf("length (-want +got):\n%s", diff)
		}
		if !bytes.Equal(data, get(t, s, ref.Digest)) {
			t.Errorf("bytes of %s differ", ref.Digest.Short())
		}
	}
}

func testIdempotent(t *testing.T, s blob.Store) {
	data := []byte("the same bytes")
	first := put(t, s, data)
	if second := put(t, s, data); first != second {
		t.Errorf("second Put returned %v, first %v", second, first)
	}
	if got := get(t, s, first.Digest); !bytes.Equal(got, data) {
		t.Errorf("after two puts the store holds %q", got)
	}
}

func testAbsent(t *testing.T, s blob.Store) {
	put(t, s, []byte("something else"))
	for _, d := range []blob.Digest{blob.Sum([]byte("never stored")), {}} {
		rc, err := s.Get(t.Context(), d)
		if err == nil {
			rc.Close()
		}
		if !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("Get(%s) = %v, want ErrNotFound", d, err)
		}
	}
}

func testLarge(t *testing.T, s blob.Store) {
	data := make([]byte, 5<<20+17)
	rand.NewChaCha8([32]byte{1}).Read(data)
	ref := must.Get(s.Put(t.Context(), iotest.HalfReader(bytes.NewReader(data))))(t)
	if ref.Digest != blob.Sum(data) || ref.Size != int64(len(data)) {
		t.Fatalf("Put returned %v", ref)
	}
	if !bytes.Equal(get(t, s, ref.Digest), data) {
		t.Error("bytes differ")
	}
}

func testFailingReader(t *testing.T, s blob.Store) {
	broken := errors.New("the source broke")
	half := []byte("only half of it")
	_, err := s.Put(t.Context(), io.MultiReader(bytes.NewReader(half), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Errorf("Put = %v, want the reader's error", err)
	}
	rc, err := s.Get(t.Context(), blob.Sum(half))
	if err == nil {
		rc.Close()
	}
	if !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("Get of the half = %v, want ErrNotFound", err)
	}
}

func testContext(t *testing.T, s blob.Store) {
	ref := put(t, s, []byte("kept"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Put(ctx, strings.NewReader("late")); !errors.Is(err, context.Canceled) {
		t.Errorf("Put under an ended context = %v", err)
	}
	rc, err := s.Get(ctx, ref.Digest)
	if err == nil {
		_, err = io.ReadAll(rc)
		rc.Close()
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Get under an ended context = %v", err)
	}
}

func testBuffer(t *testing.T, s blob.Store) {
	data := []byte("mine to change")
	ref := put(t, s, data)
	copy(data, "XXXX")
	got := get(t, s, ref.Digest)
	if string(got) != "mine to change" {
		t.Errorf("the store shares the caller's bytes: %q", got)
	}
	copy(got, "YYYY")
	if again := get(t, s, ref.Digest); string(again) != "mine to change" {
		t.Errorf("the caller shares the store's bytes: %q", again)
	}
}

func testTwoReaders(t *testing.T, s blob.Store) {
	ref := put(t, s, []byte("abcdef"))
	a, err := s.Get(t.Context(), ref.Digest)
	must.Do(t, err)
	defer a.Close()
	must.Get(io.ReadFull(a, make([]byte, 3)))(t)
	if got := get(t, s, ref.Digest); string(got) != "abcdef" {
		t.Errorf("second reader read %q", got)
	}
	rest, err := io.ReadAll(a)
	if err != nil || string(rest) != "def" {
		t.Errorf("first reader went on with %q, %v", rest, err)
	}
}

func testConcurrency(t *testing.T, s blob.Store) {
	const writers, each = 8, 16
	var wg sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				// Every writer stores the same set in another order.
				data := bytes.Repeat(fmt.Appendf(nil, "blob %d\n", (i+w)%each), 100)
				ref, err := s.Put(t.Context(), bytes.NewReader(data))
				if err != nil {
					errs[w] = err
					return
				}
				rc, err := s.Get(t.Context(), ref.Digest)
				if err != nil {
					errs[w] = fmt.Errorf("a stored blob is not there: %w", err)
					return
				}
				got, err := io.ReadAll(rc)
				rc.Close()
				if err != nil || !bytes.Equal(got, data) {
					errs[w] = fmt.Errorf("read %d bytes of %d: %w", len(got), len(data), err)
					return
				}
			}
		})
	}
	wg.Wait()
	must.Report(t, errors.Join(errs...))
}

func testCorrupt(t *testing.T, s blob.Store, c corrupter) {
	ref := put(t, s, []byte("true bytes"))
	for _, bad := range []string{"false byte", "true", "true bytes and more", ""} {
		must.Do(t, c.Corrupt(ref.Digest, []byte(bad)))
		rc, err := s.Get(t.Context(), ref.Digest)
		if err == nil {
			_, err = io.ReadAll(rc)
			rc.Close()
		}
		if !errors.Is(err, blob.ErrCorrupt) {
			t.Errorf("reading %q under the digest of other bytes = %v, want ErrCorrupt", bad, err)
		}
	}
}
