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

// ErrNotText is wrapped by AddResource for bytes that are not text.
var ErrNotText = errors.New("memory: not text")

// Limits of a resource.
const (
	MaxResource = 4 << 20 // bytes
	MaxPassage  = 2000    // bytes of each note that it is cut into
)

// resources is the prefix of the names of resources.
const resources = "memory://resources/"

// AddResource stores a text, such as a file, under a name memory://resources/... It splits
// the text into passages, so that a search finds the location, and stores them as the notes
// <uri>/000000, <uri>/000001 and so on, each with its origin. It returns the number of
// passages. Adding the same text with the same origin again has no effect. Another text
// replaces the previous one passage by passage; repeat an interrupted call to complete it.
//
// A text that is not UTF-8 or contains zero bytes is ErrNotText, and a text of more than
// MaxResource bytes is ErrTooLarge. AddResource then stores nothing.
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

// split cuts a text into passages whose concatenation is the text. It cuts between
// paragraphs if they are short enough, else at the end of a line, a sentence or a word. It
// appends blank passages to the previous one.
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

// cutAt returns the best end of a passage, in the second half of the text if possible.
func cutAt(text string) int {
	for _, end := range []string{"\n\n", "\n", ". ", "。", " "} {
		if at := strings.LastIndex(text, end); at >= len(text)/2 {
			return at + len(end)
		}
	}
	return len(text)
}
