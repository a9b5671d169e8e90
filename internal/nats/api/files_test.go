package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// served answers requests of clients, over one connection that also sends them.
func served(t *testing.T, test func(t *testing.T, c *Conn)) {
	t.Helper()
	layer.InBubble(t, func(t *testing.T, c *Conn, _ *natstest.Wire) {
		queries := must.Get(c.ServeQueries(t.Context(), &Queries{Values: journal.NewValues(c.Logs.Log())}))(t)
		control := must.Get(c.ServeControl(t.Context(), func(context.Context, journal.Signal) error { return nil }, nil, nil))(t)
		test(t, c)
		must.Report(t, errors.Join(queries.Stop(), control.Stop()))
	})
}

// TestRemoteBlobs puts and gets blobs by requests, also blobs of several parts. The streams
// hold the same messages as if a node had stored them.
func TestRemoteBlobs(t *testing.T) {
	served(t, func(t *testing.T, c *Conn) {
		far, near := c.Requests.RemoteBlobs("acme"), c.Logs.Blobs("acme")
		for _, size := range []int{0, 1, wire.MaxBlobPart - 1, wire.MaxBlobPart, wire.MaxBlobPart + 1, 3*wire.MaxBlobPart + 7} {
			data := bytes.Repeat([]byte("x"), size)
			ref, err := far.Put(t.Context(), bytes.NewReader(data))
			if err != nil || ref.Digest != blob.Sum(data) || ref.Size != int64(size) {
				t.Fatalf("put %d bytes: %+v, %v", size, ref, err)
			}
			for name, store := range map[string]blob.Store{"far": far, "near": near} {
				if got, err := read(t.Context(), store, ref.Digest); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s: %d bytes of %d, %v", name, len(got), size, err)
				}
			}
			if missing, err := far.(blob.Prober).Missing(t.Context(), []blob.Digest{ref.Digest, blob.Sum([]byte("absent"))}); err != nil || len(missing) != 1 || missing[0] != blob.Sum([]byte("absent")) {
				t.Errorf("missing: %v, %v", missing, err)
			}
		}
	})
}

// TestBlobsOfOthers: a digest gives no access to another tenant's blobs.
func TestBlobsOfOthers(t *testing.T) {
	served(t, func(t *testing.T, c *Conn) {
		ref := must.Get(c.Requests.RemoteBlobs("acme").Put(t.Context(), strings.NewReader("secret")))(t)
		others := c.Requests.RemoteBlobs("other")
		if data, err := read(t.Context(), others, ref.Digest); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("another tenant reads %q, %v", data, err)
		}
		if missing, err := others.(blob.Prober).Missing(t.Context(), []blob.Digest{ref.Digest}); err != nil || len(missing) != 1 {
			t.Errorf("another tenant is told what is there: %v, %v", missing, err)
		}
		list := must.Get(json.Marshal(wire.Blob{Data: append(ref.Digest[:], ref.Digest[:]...), List: true}))(t)
		if err := put(c, "other", blob.Sum([]byte("secretsecret")).String(), list); !errors.Is(err, run.ErrMalformed) {
			t.Errorf("a list of another tenant's parts: %v", err)
		}
	})
}

// TestBadBlobs rejects bytes that are not the named blob.
func TestBadBlobs(t *testing.T) {
	served(t, func(t *testing.T, c *Conn) {
		part := must.Get(c.Logs.Blobs("acme").Put(t.Context(), strings.NewReader("part")))(t)
		body := func(data []byte, list bool) []byte {
			b := must.Get(json.Marshal(wire.Blob{Data: data, List: list}))(t)
			return b
		}
		absent := blob.Sum([]byte("absent"))
		long := bytes.Repeat([]byte("y"), wire.MaxBlobPart+1)
		for name, tt := range map[string]struct {
			digest string
			body   []byte
		}{
			"other bytes":           {blob.Sum([]byte("a")).String(), body([]byte("b"), false)},
			"too long":              {blob.Sum(long).String(), body(long, false)},
			"no digest":             {"abc", body([]byte("a"), false)},
			"capital letters":       {strings.ToUpper(blob.Sum([]byte("a")).String()), body([]byte("a"), false)},
			"no JSON":               {blob.Sum([]byte("a")).String(), []byte("a")},
			"unknown field":         {blob.Sum([]byte("a")).String(), []byte(`{"data":"YQ==","tenant":"other"}`)},
			"a list of other parts": {blob.Sum([]byte("partpart!")).String(), body(append(part.Digest[:], part.Digest[:]...), true)},
			"a part is missing":     {blob.Sum([]byte("partabsent")).String(), body(append(part.Digest[:], absent[:]...), true)},
			"a list of one":         {part.Digest.String(), body(part.Digest[:], true)},
			"too many parts":        {blob.Sum(bytes.Repeat([]byte("part"), 1025)).String(), body(bytes.Repeat(part.Digest[:], 1025), true)},
			"half a digest":         {blob.Sum([]byte("partpart")).String(), body(append(part.Digest[:], part.Digest[:16]...), true)},
		} {
			if err := put(c, "acme", tt.digest, tt.body); !errors.Is(err, run.ErrMalformed) {
				t.Errorf("%s: %v", name, err)
			}
			if d, err := blob.ParseDigest(tt.digest); err == nil && d != part.Digest {
				if _, err := read(t.Context(), c.Logs.Blobs("acme"), d); !errors.Is(err, blob.ErrNotFound) {
					t.Errorf("%s: something is stored: %v", name, err)
				}
			}
		}
	})
}

// TestUploadWithoutRoom: a tenant that holds most of a store that is filling up can put no
// more, while others can.
func TestUploadWithoutRoom(t *testing.T) {
	served(t, func(t *testing.T, c *Conn) {
		for _, tenant := range []session.Tenant{"acme", "acme", "acme", "other"} {
			must.Get(c.Logs.Blobs(tenant).Put(t.Context(), bytes.NewReader(random(64<<10))))(t)
		}
		fill := &streams.StreamUsage{Needed: true}
		fill.Bytes.Store(256 << 10)
		fill.Max.Store(320 << 10)
		c.Streams.Capacity.Streams[streams.StreamBlob] = fill
		if _, err := c.Requests.RemoteBlobs("acme").Put(t.Context(), strings.NewReader("more")); !errors.Is(err, run.ErrBusy) {
			t.Errorf("the tenant that has most: %v", err)
		}
		if _, err := c.Requests.RemoteBlobs("other").Put(t.Context(), strings.NewReader("more")); err != nil {
			t.Errorf("another one: %v", err)
		}
	})
}

func put(c *Conn, t session.Tenant, digest string, body []byte) error {
	data, err := c.Conn.Ask(context.Background(), messages.ControlPrefix+string(t)+".anonymous.blob."+digest+".put", body)
	if err != nil {
		return err
	}
	a, err := wire.DecodeAnswer(data)
	return errors.Join(err, a.Err())
}

func read(ctx context.Context, b blob.Store, d blob.Digest) ([]byte, error) {
	rc, err := b.Get(ctx, d)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(rc)
	return data, errors.Join(err, rc.Close())
}

func random(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.Read(data) // never fails
	return data
}
