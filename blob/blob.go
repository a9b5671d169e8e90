// Package blob names immutable bytes by their SHA-256 digest and keeps them.
//
// Data that is too large for a commit (a long tool output, a file of a
// workspace, a prompt) is stored once under the digest of its bytes, and a
// [Ref] names it. The bytes behind a digest never change, so readers may cache
// them for ever and writers may store them twice.
//
// The package counts no references and deletes no blobs. A [Store] belongs to one
// tenant.
package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

var (
	// ErrNotFound is returned by Get for a digest that is not in the store.
	ErrNotFound = errors.New("blob: not found")
	// ErrCorrupt is returned when stored bytes do not match their digest.
	ErrCorrupt = errors.New("blob: stored bytes do not match their digest")
)

// Digest is the SHA-256 of some bytes. The zero Digest means "none".
type Digest [sha256.Size]byte

// Sum returns the digest of data.
func Sum(data []byte) Digest { return sha256.Sum256(data) }

// ParseDigest reads the 64 hexadecimal digits that String writes.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	if len(s) != 2*len(d) {
		return d, fmt.Errorf("blob: digest %q: want %d hexadecimal digits", s, 2*len(d))
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil {
		return Digest{}, fmt.Errorf("blob: digest %q: %w", s, err)
	}
	return d, nil
}

// String returns 64 lower-case hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Short returns the first 12 digits, for display.
func (d Digest) Short() string { return d.String()[:12] }

// IsZero reports whether d is the zero Digest, which names no blob.
func (d Digest) IsZero() bool { return d == Digest{} }

// MarshalText writes the empty text for the zero Digest.
func (d Digest) MarshalText() ([]byte, error) {
	if d.IsZero() {
		return []byte{}, nil
	}
	return hex.AppendEncode(nil, d[:]), nil
}

// UnmarshalText reads the output of MarshalText.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*d = Digest{}
		return nil
	}
	v, err := ParseDigest(string(text))
	if err != nil {
		return err
	}
	*d = v
	return nil
}

// Ref is the name and the size of a blob.
type Ref struct {
	Digest Digest `json:"digest"`
	Size   int64  `json:"size"`
}

// Store keeps the blobs of one tenant. Its methods may be called concurrently, even for
// the same bytes.
type Store interface {
	// Put reads r to its end, stores the bytes and returns their name. It reads
	// r only until it returns, and keeps neither r nor a buffer that r filled.
	//
	// When Put returns without an error, Get of the digest succeeds, and the
	// bytes survive the failures that the store promises to survive. Putting
	// the same bytes again succeeds and stores them once.
	//
	// After an error of r, or the end of ctx, no bytes become visible under the digest.
	// After any other error the bytes may be stored or not; putting them again is safe.
	Put(ctx context.Context, r io.Reader) (Ref, error)
	// Get returns a reader of the bytes that d names, or an error that wraps
	// ErrNotFound. Each call returns a new reader. The caller owns the reader and must
	// close it. The reader may use ctx until it is closed.
	//
	// The reader returns ErrCorrupt instead of io.EOF, or earlier, if the bytes do not
	// match d. A caller that must not act on wrong bytes must read to the end first.
	Get(ctx context.Context, d Digest) (io.ReadCloser, error)
}

// Prober is an optional interface of a [Store] with remote storage. A caller with many
// blobs uses it to find out which of them it must put. Its method may be called
// concurrently with the store's methods.
type Prober interface {
	// Missing returns the digests whose blobs must be put, in their order. The other
	// blobs are stored, and stay stored at least as long as blobs that Put has just
	// stored. It does not keep the slice.
	Missing(ctx context.Context, all []Digest) ([]Digest, error)
}
