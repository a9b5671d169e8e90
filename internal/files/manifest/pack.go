package manifest

import (
	"bytes"
	"context"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/rathcluster/rath/blob"
)

const (
	// PackSize is the approximate number of bytes of files in a pack.
	PackSize = 4 << 20
	// maxPack is the maximum size that is read as one pack.
	maxPack = 4 * PackSize
)

// Pack collects the bytes of files that are too small for separate blobs. It is not safe
// for concurrent use.
type Pack struct {
	name   blob.Digest
	data   []byte
	places map[blob.Digest]place
	enc    *zstd.Encoder
}

// Fits reports whether a file of size bytes fits into the pack.
func (p *Pack) Fits(size int) bool { return len(p.data)+size <= 2*PackSize }

// Add adds the bytes of a file with digest d unless the pack has them.
func (p *Pack) Add(d blob.Digest, data []byte) {
	if _, ok := p.places[d]; ok || len(data) == 0 {
		return
	}
	if p.places == nil {
		p.places = map[blob.Digest]place{}
	}
	at := len(p.data)
	p.data = p.compress(data)
	if len(p.data)-at >= len(data) {
		p.data = append(p.data[:at], data...)
	}
	p.places[d] = place{at: int64(at), length: int64(len(p.data) - at), size: int64(len(data))}
}

// AddParts records that the bytes of a file are these consecutive blobs, which the caller
// stores.
func (p *Pack) AddParts(d blob.Digest, size int64, parts []blob.Digest) {
	if p.places == nil {
		p.places = map[blob.Digest]place{}
	}
	p.places[d] = place{size: size, parts: parts}
}

// minCompressed is the minimum size of compressed files: shorter ones gain nothing.
const minCompressed = 128

// compress appends the bytes of a file to the pack, compressed. Each file is compressed
// separately, so that it can be read without the others.
func (p *Pack) compress(data []byte) []byte {
	if len(data) < minCompressed {
		return append(p.data, data...)
	}
	if p.enc == nil {
		var err error
		p.enc, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(false))
		if err != nil {
			panic("manifest: " + err.Error()) // the options are constants
		}
	}
	return p.enc.EncodeAll(data, p.data)
}

// Store stores the pack, which must not change afterwards. It first asks a remote store
// whether it has the pack.
func (p *Pack) Store(ctx context.Context, b blob.Store) error {
	if len(p.places) == 0 {
		return nil
	}
	p.name, p.enc = blob.Sum(p.data), nil
	if far, ok := b.(blob.Prober); ok {
		missing, err := far.Missing(ctx, []blob.Digest{p.name})
		if err != nil {
			return fmt.Errorf("workspace: ask for a pack: %w", err)
		}
		if len(missing) == 0 {
			p.data = nil
			return nil
		}
	}
	_, err := b.Put(ctx, bytes.NewReader(p.data))
	p.data = nil
	if err != nil {
		return fmt.Errorf("workspace: store a pack of %d files: %w", len(p.places), err)
	}
	return nil
}

// newDecoder returns a decoder that allocates at most the size in the manifest.
func newDecoder() *zstd.Decoder {
	dec, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic("manifest: " + err.Error()) // the option is a constant
	}
	return dec
}

// unpack returns the bytes of a file from those in its pack.
func unpack(dec *zstd.Decoder, data []byte, size int64) ([]byte, error) {
	out, err := dec.DecodeAll(data, make([]byte, 0, size))
	if err == nil && int64(len(out)) != size {
		err = fmt.Errorf("%d bytes, the manifest says %d", len(out), size)
	}
	return out, err
}
