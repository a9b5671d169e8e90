package eventlog

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/blob/blobtest"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/session"
)

// damageable lets the suite write wrong bytes under a digest.
type damageable struct {
	blob.Store
	c *Logs
	t session.Tenant
}

func (d damageable) Corrupt(digest blob.Digest, data []byte) error {
	_, err := d.c.conn.JS.Publish(context.Background(), (&blobMessages{d.c, d.t}).subject(digest), data)
	return err
}

func TestBlobStore(t *testing.T) {
	c := layer.Open(t)
	n := 0
	blobtest.TestStore(t, func() blob.Store {
		n++
		tenant := session.Tenant("t" + strconv.Itoa(n))
		return damageable{c.Blobs(tenant), c, tenant}
	})
}

func TestBlobTenants(t *testing.T) {
	ctx := t.Context()
	c := layer.Open(t)
	ref := must.Get(c.Blobs("one").Put(ctx, bytes.NewReader([]byte("secret"))))(t)
	if _, err := c.Blobs("two").Get(ctx, ref.Digest); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("another tenant reads it: %v", err)
	}
	for _, bad := range []session.Tenant{"", "a.b", "*", ">"} {
		if _, err := c.Blobs(bad).Put(ctx, bytes.NewReader(nil)); err == nil {
			t.Errorf("tenant %q was accepted", bad)
		}
		if _, err := c.Blobs(bad).Get(ctx, ref.Digest); err == nil || errors.Is(err, blob.ErrNotFound) {
			t.Errorf("tenant %q: %v", bad, err)
		}
	}
}

// TestBlobSizes stores blobs around the size of one message.
func TestBlobSizes(t *testing.T) {
	ctx := t.Context()
	c := layer.Open(t)
	s := c.Blobs("default")
	for _, size := range []int{0, 1, blobPart - 1, blobPart, blobPart + 1, 2 * blobPart, 7*blobPart + 3} {
		data := make([]byte, size)
		rand.Read(data)
		ref, err := s.Put(ctx, bytes.NewReader(data))
		if err != nil || ref.Digest != blob.Sum(data) || ref.Size != int64(size) {
			t.Fatalf("%d bytes: %v, %v", size, ref, err)
		}
		r, err := s.Get(ctx, ref.Digest)
		must.Do(t, err)
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: got %d, %v", size, len(got), err)
		}
	}
}

// TestBlobDamagedPart replaces a part, and then removes it.
func TestBlobDamagedPart(t *testing.T) {
	ctx := t.Context()
	srv := natstest.Start(t, nil)
	o := streamstest.NodeOptions(srv)
	o.User, o.Password = srv.Operator()
	c := layer.Dial(t, o)
	must.Do(t, c.streams.Provision(ctx))
	s := c.Blobs("default")
	data := make([]byte, 3*blobPart)
	rand.Read(data)
	ref := must.Get(s.Put(ctx, bytes.NewReader(data)))(t)
	part := blob.Sum(data[blobPart : 2*blobPart])
	read := func() error {
		r, err := s.Get(ctx, ref.Digest)
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.Copy(io.Discard, r)
		return err
	}
	must.Get(c.conn.JS.Publish(ctx, (&blobMessages{c, "default"}).subject(part), []byte("wrong")))(t)
	if err := read(); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("wrong part: %v", err)
	}
	stream := must.Get(c.conn.JS.Stream(ctx, streams.StreamBlob))(t)
	must.Do(t, stream.Purge(ctx, jetstream.WithPurgeSubject((&blobMessages{c, "default"}).subject(part))))
	if err := read(); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("missing part: %v", err)
	}
	// Storing the blob again mends it.
	must.Get(s.Put(ctx, bytes.NewReader(data)))(t)
	if err := read(); err != nil {
		t.Errorf("after it was stored again: %v", err)
	}
}

// TestBlobRenewal stores a blob again soon, which writes nothing, and after more than a
// day, which renews it.
func TestBlobRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := layer.Open(t)
		s := c.Blobs("default")
		put := func() uint64 {
			t.Helper()
			ref := must.Get(s.Put(ctx, bytes.NewReader([]byte("same"))))(t)
			m := must.Get(c.messages.LeaderLast(ctx, streams.StreamBlob, (&blobMessages{c, "default"}).subject(ref.Digest)))(t)
			return m.Seq
		}
		first := put()
		if again := put(); again != first {
			t.Errorf("stored again at once: sequence %d, then %d", first, again)
		}
		time.Sleep(BlobFresh + time.Minute)
		if later := put(); later == first {
			t.Error("not renewed after more than a day")
		}
	})
}

// TestBlobRenewalBehind: the clock of a writer is two days behind the server's. The blobs
// that it stores or requests are renewed after the same time all the same.
func TestBlobRenewalBehind(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Logs, w *natstest.Wire) {
		w.Set(natstest.Days(2), nil)
		s, d := c.Blobs("default"), blob.Sum([]byte("same"))
		put := func() error {
			_, err := s.Put(t.Context(), bytes.NewReader([]byte("same")))
			return err
		}
		ask := func() error {
			missing, err := c.MissingBlobs(t.Context(), "default", []blob.Digest{d})
			if len(missing) > 0 {
				t.Error("it is not there")
			}
			return err
		}
		var last uint64
		use := func(what string, renews bool, use func() error) {
			t.Helper()
			must.Do(t, use())
			m := must.Get(c.messages.LeaderLast(t.Context(), streams.StreamBlob, (&blobMessages{c, "default"}).subject(d)))(t)
			if m.Seq != last != renews {
				t.Errorf("%s: renewed: %t", what, !renews)
			}
			last = m.Seq
		}
		use("stored", true, put)
		use("stored again at once", false, put)
		use("asked for at once", false, ask)
		time.Sleep(BlobFresh + time.Minute)
		use("stored again after more than a day", true, put)
		time.Sleep(BlobFresh + time.Minute)
		use("asked for after more than a day", true, ask)
	})
}

// TestMissingBlobs asks for more blobs than a page of reads holds, in bytes and in number:
// the absent ones are returned in their order, and after more than a day the existing ones
// are renewed, lists of parts as such and with their parts.
func TestMissingBlobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := layer.Open(t)
		s := c.Blobs("default")
		var all, absent []blob.Digest
		put := func(data []byte) {
			t.Helper()
			ref := must.Get(s.Put(ctx, bytes.NewReader(data)))(t)
			all = append(all, ref.Digest)
		}
		for i := range 18 {
			put(bytes.Repeat([]byte{byte(i)}, blobPart-i))
		}
		long := bytes.Repeat([]byte("long"), blobPart)
		put(long)
		for i := range conn.PageMessages {
			d := blob.Sum(fmt.Append(nil, "absent ", i))
			all, absent = append(all, d), append(absent, d)
		}
		put([]byte("the last one"))
		last := func() (seqs []uint64) {
			for _, d := range []blob.Digest{all[0], all[18], all[len(all)-1], blob.Sum(long[:blobPart])} {
				m := must.Get(c.messages.LeaderLast(ctx, streams.StreamBlob, (&blobMessages{c, "default"}).subject(d)))(t)
				seqs = append(seqs, m.Seq)
			}
			return seqs
		}
		first := last()
		for _, wait := range []time.Duration{0, BlobFresh + time.Minute} {
			time.Sleep(wait)
			missing, err := c.MissingBlobs(ctx, "default", all)
			if err != nil || !slices.Equal(missing, absent) {
				t.Fatalf("%d are missing, want %d; error %v", len(missing), len(absent), err)
			}
			for i, seq := range last() {
				if renewed := seq != first[i]; renewed != (wait > 0) {
					t.Errorf("after %v: blob %d was renewed: %t", wait, i, renewed)
				}
			}
		}
		r := must.Get(s.Get(ctx, all[18]))(t)
		defer r.Close()
		if data, err := io.ReadAll(r); err != nil || !bytes.Equal(data, long) {
			t.Errorf("the blob in parts is another one after it was renewed: %v", err)
		}
		if missing, err := c.MissingBlobs(ctx, "globex", all); err != nil || len(missing) != len(all) {
			t.Errorf("another tenant lacks %d of %d: %v", len(missing), len(all), err)
		}
	})
}

// BenchmarkBlob compares a blob with an object of a JetStream object store on
// the same server, 4 KiB each.
func BenchmarkBlob(b *testing.B) {
	for _, lazy := range []bool{false, true} {
		srv := natstest.Start(b, &natsserver.Options{Lazy: lazy})
		o := streamstest.NodeOptions(srv)
		if lazy {
			o.Level = streams.Lazy
		}
		c := layer.Dial(b, o)
		must.Do(b, c.streams.Provision(b.Context()))
		objects := must.Get(c.conn.JS.CreateObjectStore(b.Context(), jetstream.ObjectStoreConfig{Bucket: "OBJ", MaxBytes: 1 << 30}))(b)
		s := c.Blobs("default")
		data := make([]byte, 4<<10)
		fill := func() []byte { rand.Read(data[:16]); return data }
		name := fmt.Sprintf("lazy=%v/", lazy)
		b.Run(name+"put/blob", func(b *testing.B) {
			for b.Loop() {
				must.Get(s.Put(b.Context(), bytes.NewReader(fill())))(b)
			}
		})
		b.Run(name+"put/object", func(b *testing.B) {
			for b.Loop() {
				d := blob.Sum(fill())
				must.Get(objects.PutBytes(b.Context(), d.String(), data))(b)
			}
		})
		ref := must.Get(s.Put(b.Context(), bytes.NewReader(data)))(b)
		must.Get(objects.PutBytes(b.Context(), "x", data))(b)
		b.Run(name+"get/blob", func(b *testing.B) {
			for b.Loop() {
				r, err := s.Get(b.Context(), ref.Digest)
				if err == nil {
					_, err = io.Copy(io.Discard, r)
					r.Close()
				}
				must.Do(b, err)
			}
		})
		b.Run(name+"get/object", func(b *testing.B) {
			for b.Loop() {
				must.Get(objects.GetBytes(b.Context(), "x"))(b)
			}
		})
	}
}
