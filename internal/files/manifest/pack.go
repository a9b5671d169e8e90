package manifest

import (
	"bytes"
	"context"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/rathcluster/rath/blob"
)

const (
	// PackSize is about how many bytes of files come into one pack.
	PackSize = 4 << 20
	// maxPack bounds what is read as one.
	maxPack = 4 * PackSize
)

// Pack takes the bytes of files that are too small for blobs of their own. It is for one
// goroutine at a time.
type Pack struct {
	name   blob.Digest
	data   []byte
	places map[blob.Digest]place
	enc    *zstd.Encoder
}

// Fits reports whether the pack takes a file of so many bytes.
func (p *Pack) Fits(size int) bool { return len(p.data)+size <= 2*PackSize }

// Add takes the bytes of a file, whose digest the caller knows, unless the pack has them.
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

// AddParts notes that the bytes of a file are these blobs, one after the other, which the
// caller stores.
func (p *Pack) AddParts(d blob.Digest, size int64, parts []blob.Digest) {
	if p.places == nil {
		p.places = map[blob.Digest]place{}
	}
	p.places[d] = place{size: size, parts: parts}
}

// minCompressed is the size of the files that are compressed: shorter ones win nothing.
const minCompressed = 128

// compress returns the pack's bytes with those of a file, compressed. Each file is by
// itself, so that one can be read without the others.
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

// Store puts the pack, which takes nothing more. A store far away is asked first whether it
// has it.
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

// newDecoder returns a decoder that allocates what the manifest says and no more.
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
