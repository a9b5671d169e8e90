package cluster

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
)

// Key encrypts and authenticates the traffic between nodes, with AES-GCM: 16, 24 or 32
// bytes. It prints as "[key]" in logs and messages; [Key.Text] is the way to store it.
type Key []byte

// NewKey draws a key of 32 bytes.
func NewKey() Key {
	k := make(Key, 32)
	rand.Read(k) //nolint:errcheck // never fails, by its contract
	return k
}

// ParseKey reads the text of a key: base64, as [Key.Text] writes it, with or without
// space around it.
func ParseKey(text string) (Key, error) {
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		// The cause would quote a byte of the key.
		return nil, fmt.Errorf("cluster: key: not base64: take the output of `openssl rand -base64 32`")
	}
	if err := Key(b).check(); err != nil {
		return nil, err
	}
	return b, nil
}

// Text is the key as base64. It is a secret.
func (k Key) Text() string { return base64.StdEncoding.EncodeToString(k) }

func (k Key) check() error {
	switch len(k) {
	case 16, 24, 32:
		return nil
	case 0:
		return fmt.Errorf("cluster: key: none: give all nodes the same 32 bytes (`openssl rand -base64 32`)")
	}
	return fmt.Errorf("cluster: key: %d bytes: it has 16, 24 or 32 (`openssl rand -base64 32`)", len(k))
}

const hidden = "[key]"

// Format prints no key, with any verb.
func (k Key) Format(s fmt.State, _ rune) { fmt.Fprint(s, hidden) }

// MarshalText keeps keys out of JSON; [ParseKey] does not read it back.
func (k Key) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// LogValue keeps keys out of logs.
func (k Key) LogValue() slog.Value { return slog.StringValue(hidden) }
