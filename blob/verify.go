package blob

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
)

// Verify returns a reader of rc's bytes that ends with io.EOF only if they are the
// bytes that d names, and with ErrCorrupt otherwise. A reader that must not act on
// wrong bytes must read to the end first. Closing the result closes rc. The result must
// not be used concurrently.
func Verify(rc io.ReadCloser, d Digest) io.ReadCloser {
	return &verifier{rc: rc, want: d, sum: sha256.New()}
}

type verifier struct {
	rc   io.ReadCloser
	want Digest
	sum  hash.Hash
	end  error // sticky, so that a second Read after the end returns the same error
}

func (v *verifier) Read(p []byte) (int, error) {
	if v.end != nil {
		return 0, v.end
	}
	n, err := v.rc.Read(p)
	v.sum.Write(p[:n])
	if err == io.EOF {
		var got Digest
		v.sum.Sum(got[:0])
		if got != v.want {
			err = fmt.Errorf("%w: want %s, have %s", ErrCorrupt, v.want.Short(), got.Short())
		}
	}
	v.end = err
	return n, err
}

func (v *verifier) Close() error { return v.rc.Close() }
