package run

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of an event, in bytes.
const (
	MaxEventName  = 128
	MaxEventKey   = 256
	MaxEventValue = 64 << 10
)

// EventOfRath is the prefix of the names of events that only Rath itself publishes.
const EventOfRath = "rath."

// ValidEvent checks the name and the key of an event. The error wraps ErrMalformed.
func ValidEvent(name, key string) error {
	start := name[:min(len(name), 40)]
	switch {
	case name == "" || len(name) > MaxEventName:
		return fmt.Errorf("event %q: its name has %d bytes: %w; take 1 to %d", start, len(name), ErrMalformed, MaxEventName)
	case strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") != "":
		return fmt.Errorf("event %q: %w; a name has letters, digits, '.', '_' and '-', as in invoice.paid", start, ErrMalformed)
	case len(key) > MaxEventKey:
		return fmt.Errorf("event %s: its key has %d bytes: %w; take at most %d", name, len(key), ErrMalformed, MaxEventKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("event %s: its key is not valid UTF-8: %w", name, ErrMalformed)
	}
	return nil
}
