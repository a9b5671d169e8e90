package run

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Tags are short pairs by which a run is found: its task has them, and its workflow changes
// them.
type Tags map[string]string

// Limits of tags: their number, and the bytes of a key and of a value.
const (
	MaxTags     = 16
	MaxTagKey   = 32
	MaxTagValue = 64
)

// ValidTag checks a pair: a key has 1 to MaxTagKey of A-Z a-z 0-9 _ -, a value has 1 to
// MaxTagValue of those and . : / @ +, so that conditions need no quotes. The error wraps
// ErrMalformed.
func ValidTag(key, value string) error {
	if key == "" || len(key) > MaxTagKey || strings.ContainsFunc(key, func(r rune) bool { return !inTag(r, "") }) {
		return fmt.Errorf("run: %.40q is no key of a tag: %w; give 1 to %d of A-Z a-z 0-9 _ -", key, ErrMalformed, MaxTagKey)
	}
	if value == "" || len(value) > MaxTagValue || strings.ContainsFunc(value, func(r rune) bool { return !inTag(r, ".:/@+") }) {
		return fmt.Errorf("run: tag %s: %.40q, of %d bytes, is no value of a tag: %w; give 1 to %d of A-Z a-z 0-9 _ - . : / @ +", key, value, len(value), ErrMalformed, MaxTagValue)
	}
	return nil
}

func inTag(r rune, more string) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-"+more, r)
}

// Valid checks all pairs and their number. The error wraps ErrMalformed.
func (t Tags) Valid() error {
	if len(t) > MaxTags {
		return fmt.Errorf("run: %d tags: %w; give at most %d", len(t), ErrMalformed, MaxTags)
	}
	for _, key := range slices.Sorted(maps.Keys(t)) {
		if err := ValidTag(key, t[key]); err != nil {
			return err
		}
	}
	return nil
}

// With returns the tags with one pair set, or removed if the value is "".
func (t Tags) With(key, value string) Tags {
	out := maps.Clone(t)
	if value == "" {
		delete(out, key)
		return out
	}
	if out == nil {
		out = Tags{}
	}
	out[key] = value
	return out
}

// String returns the pairs in the order of their keys: "customer=acme tier=gold".
func (t Tags) String() string {
	pairs := make([]string, 0, len(t))
	for _, key := range slices.Sorted(maps.Keys(t)) {
		pairs = append(pairs, key+"="+t[key])
	}
	return strings.Join(pairs, " ")
}
