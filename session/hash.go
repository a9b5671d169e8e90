package session

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Hash is the SHA-256 of a commit's stored bytes: it names the commit and, as Prev of
// the next one, chains the log. The zero Hash precedes the first commit.
type Hash [sha256.Size]byte

// String returns 64 hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Short returns the first 8 digits, for display.
func (h Hash) Short() string { return h.String()[:8] }

// MarshalText writes String.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText reads the output of MarshalText.
func (h *Hash) UnmarshalText(b []byte) error {
	if len(b) != 2*len(h) {
		return fmt.Errorf("session: hash of %d characters: want %d", len(b), 2*len(h))
	}
	_, err := hex.Decode(h[:], b)
	return err
}
