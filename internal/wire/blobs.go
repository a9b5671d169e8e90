package wire

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/rathcluster/rath/blob"
)

const (
	// maxBlobChunks bounds a blob to 4 GiB; its list then has 512 KiB.
	maxBlobChunks = 16 << 10
	// blobWindow is the number of parts of one blob in flight.
	blobWindow = 4
)

// ErrBlobTooLarge is returned by Put for more than 4 GiB.
var ErrBlobTooLarge = errors.New("wire: blob larger than 4 GiB")

// BlobMessages store the parts of blobs: under a digest its bytes or, for a long blob,
// the list of its parts, each a digest of 32 bytes. Its methods may be called
// concurrently.
type BlobMessages interface {
	// Load returns the message under a digest, or blob.ErrNotFound. The caller owns the
	// bytes, which are not checked.
	Load(ctx context.Context, d blob.Digest) (data []byte, list bool, err error)
	// Store returns once the message is stored; storing it again is no error. It does
	// not keep data. Parts are stored before the list that names them.
	Store(ctx context.Context, d blob.Digest, list bool, data []byte) error
}

// NewBlobs returns the store of blobs that consist of messages.
func NewBlobs(m BlobMessages) blob.Store { return &blobs{m} }

type blobs struct{ m BlobMessages }

// Put implements blob.Store.
func (b *blobs) Put(ctx context.Context, r io.Reader) (blob.Ref, error) {
	ref, err := b.put(ctx, r)
	if err != nil {
		return blob.Ref{}, fmt.Errorf("wire: put blob: %w", err)
	}
	return ref, nil
}

func (b *blobs) put(ctx context.Context, r io.Reader) (blob.Ref, error) {
	if err := ctx.Err(); err != nil {
		return blob.Ref{}, err
	}
	first, err := io.ReadAll(io.LimitReader(r, MaxBlobPart))
	if err != nil {
		return blob.Ref{}, err
	}
	if len(first) < MaxBlobPart {
		d := blob.Sum(first)
		return blob.Ref{Digest: d, Size: int64(len(first))}, b.m.Store(ctx, d, false, first)
	}
	return b.putParts(ctx, first, r)
}

// putParts stores a long blob: its parts, some of them concurrently, and then the list,
// so that a list never names a missing part.
func (b *blobs) putParts(ctx context.Context, first []byte, r io.Reader) (blob.Ref, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg    sync.WaitGroup
		slots = make(chan struct{}, blobWindow)
		sum   = sha256.New()
		list  []byte
		size  int64
	)
	err := func() error {
		for part, last := first, false; len(part) > 0 && !last; {
			if len(list) >= maxBlobChunks*len(blob.Digest{}) {
				return ErrBlobTooLarge
			}
			sum.Write(part)
			size += int64(len(part))
			d := blob.Sum(part)
			list = append(list, d[:]...)
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			data := part // the loop continues with the next part
			wg.Go(func() {
				defer func() { <-slots }()
				if err := b.m.Store(ctx, d, false, data); err != nil {
					cancel(err)
				}
			})
			if last = len(part) < MaxBlobPart; last {
				break
			}
			next := make([]byte, MaxBlobPart)
			n, err := io.ReadFull(r, next)
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return err
			}
			part = next[:n]
		}
		return nil
	}()
	if err != nil {
		cancel(err)
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return blob.Ref{}, err
	}
	ref := blob.Ref{Size: size}
	sum.Sum(ref.Digest[:0])
	if len(list) == len(blob.Digest{}) {
		return ref, nil // exactly one part: it is the blob
	}
	return ref, b.m.Store(ctx, ref.Digest, true, list)
}

// Get implements blob.Store.
func (b *blobs) Get(ctx context.Context, d blob.Digest) (io.ReadCloser, error) {
	data, list, err := b.m.Load(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("wire: get blob %s: %w", d.Short(), err)
	}
	if !list {
		return blob.Verify(io.NopCloser(bytes.NewReader(data)), d), nil
	}
	parts, err := PartsOf(d, data)
	if err != nil {
		return nil, fmt.Errorf("wire: get blob %s: %w: %w", d.Short(), blob.ErrCorrupt, err)
	}
	return blob.Verify(NewPartReader(ctx, b.m, parts), d), nil
}

// PartsOf reads a list.
func PartsOf(d blob.Digest, list []byte) ([]blob.Digest, error) {
	if len(list)%len(d) != 0 || len(list) > maxBlobChunks*len(d) {
		return nil, fmt.Errorf("list of %d bytes", len(list))
	}
	parts := make([]blob.Digest, len(list)/len(d))
	for i := range parts {
		copy(parts[i][:], list[i*len(d):])
	}
	return parts, nil
}

// partReader reads the parts of a long blob in order, some of them ahead.
type partReader struct {
	ctx    context.Context
	cancel context.CancelFunc
	m      BlobMessages
	parts  []blob.Digest      // not requested yet
	ahead  []<-chan partBytes // requested, in order
	rest   []byte             // the rest of the current part
	wg     sync.WaitGroup
}

type partBytes struct {
	data []byte
	err  error
}

// NewPartReader reads the parts of a long blob.
func NewPartReader(ctx context.Context, m BlobMessages, parts []blob.Digest) io.ReadCloser {
	r := &partReader{m: m, parts: parts}
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r
}

// Read implements io.Reader.
func (r *partReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		r.ask()
		if len(r.ahead) == 0 {
			return 0, io.EOF
		}
		part := <-r.ahead[0] // each one ends when ctx does
		r.ahead = r.ahead[1:]
		if part.err != nil {
			return 0, part.err
		}
		r.rest = part.data
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// ask fills the window.
func (r *partReader) ask() {
	for len(r.parts) > 0 && len(r.ahead) < blobWindow {
		d := r.parts[0]
		r.parts = r.parts[1:]
		out := make(chan partBytes, 1)
		r.ahead = append(r.ahead, out)
		r.wg.Go(func() {
			data, err := part(r.ctx, r.m, d)
			out <- partBytes{data, err}
		})
	}
}

// Close implements io.Closer.
func (r *partReader) Close() error {
	r.cancel()
	r.wg.Wait()
	return nil
}

// part returns the checked bytes of a part. A missing part is damage of the blob,
// because its list exists.
func part(ctx context.Context, m BlobMessages, d blob.Digest) ([]byte, error) {
	data, _, err := m.Load(ctx, d)
	switch {
	case errors.Is(err, blob.ErrNotFound):
		return nil, fmt.Errorf("wire: get blob: %w: part %s is missing", blob.ErrCorrupt, d.Short())
	case err != nil:
		return nil, fmt.Errorf("wire: get blob: part %s: %w", d.Short(), err)
	case blob.Sum(data) != d:
		return nil, fmt.Errorf("wire: get blob: %w: part %s", blob.ErrCorrupt, d.Short())
	}
	return data, nil
}
