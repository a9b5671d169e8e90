package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrNotText is wrapped by AddResource for bytes that are no text.
var ErrNotText = errors.New("memory: not text")

// Limits of a resource.
const (
	MaxResource = 4 << 20 // bytes
	MaxPassage  = 2000    // bytes of each note that it is cut into
)

// resources is what the names of resources begin with.
const resources = "memory://resources/"

// AddResource keeps a text, such as that of a file, under a name memory://resources/...: cut
// into passages, so that a search finds the place, as the notes <uri>/000000, <uri>/000001
// and so on, each with its origin. It returns how many there are. The same text from the same
// origin again changes nothing, and another text takes the place of the one before, passage
// by passage: what was begun and broke off is completed by doing it again.
//
// A text that is not UTF-8, or has zero bytes, is ErrNotText, and one of more than MaxResource
// bytes ErrTooLarge; nothing is stored then.
func AddResource(ctx context.Context, s Store, uri string, text []byte, from Origin) (passages int, err error) {
	name, ok := strings.CutPrefix(uri, resources)
	switch {
	case !ok || name == "":
		return 0, fmt.Errorf("%w %q: a resource is below %s", ErrInvalidURI, uri, resources)
	case len(text) > MaxResource:
		return 0, fmt.Errorf("%w: %s has %d bytes, a resource has at most %d: add it in parts", ErrTooLarge, uri, len(text), MaxResource)
	case !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0:
		return 0, fmt.Errorf("%w: %s has bytes that are not UTF-8: add text", ErrNotText, uri)
	}
	parts := split(string(text))
	for i, part := range parts {
		if err := s.Write(ctx, passage(uri, i), part, from); err != nil {
			return i, err
		}
	}
	below, err := s.List(ctx, uri)
	if err != nil {
		return len(parts), err
	}
	for _, old := range below {
		if n, err := strconv.Atoi(strings.TrimPrefix(old, uri+"/")); err == nil && n >= len(parts) && old == passage(uri, n) {
			if err := s.Delete(ctx, old); err != nil {
				return len(parts), fmt.Errorf("remove %s, which the text before had: %w", old, err)
			}
		}
	}
	return len(parts), nil
}

func passage(uri string, i int) string { return fmt.Sprintf("%s/%06d", uri, i) }

// split cuts a text into passages, which together are the text: of whole paragraphs where
// these are short enough, else at the end of a line, a sentence or a word. Passages that are
// blank go with the one before.
func split(text string) (parts []string) {
	for text != "" {
		n := len(text)
		if n > MaxPassage {
			n = cutAt(text[:MaxPassage])
			for !utf8.RuneStart(text[n]) {
				n--
			}
		}
		part := text[:n]
		text = text[n:]
		if strings.TrimSpace(part) == "" {
			if len(parts) == 0 {
				continue
			}
			if last := &parts[len(parts)-1]; len(*last)+len(part) <= MaxText {
				*last += part
			}
			continue
		}
		parts = append(parts, part)
	}
	return parts
}

// cutAt is where a passage ends best, in its second half if there is a place.
func cutAt(text string) int {
	for _, end := range []string{"\n\n", "\n", ". ", "。", " "} {
		if at := strings.LastIndex(text, end); at >= len(text)/2 {
			return at + len(end)
		}
	}
	return len(text)
}
