package memory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The levels at which ReadLevel reads.
const (
	LevelAbstract = "abstract" // the subject of a text, in at most 400 bytes
	LevelOverview = "overview" // its headings and the beginnings of its paragraphs, in at most 4 KiB
	LevelFull     = "full"
)

const (
	maxAbstract = 400
	maxOverview = 4 << 10
	maxBelow    = MaxResource // bytes of all notes below a name
)

// ReadLevel reads a note at a level. If the name has no note, it reads all notes below it,
// in order, as one text: a resource, for example. The abstract is the first paragraph with
// its preceding heading. The overview is the headings and the first sentence of each
// paragraph. ReadLevel calls no model. More than MaxResource bytes below a name is
// ErrTooLarge.
//
// If the Store has a method ReadLevel(ctx, uri, level), ReadLevel calls it instead.
func ReadLevel(ctx context.Context, s Store, uri, level string) (string, error) {
	switch level {
	case LevelAbstract, LevelOverview, LevelFull:
	default:
		return "", fmt.Errorf("memory: level %q: %w: want %s, %s or %s", level, errors.ErrUnsupported, LevelAbstract, LevelOverview, LevelFull)
	}
	if own, ok := s.(interface {
		ReadLevel(ctx context.Context, uri, level string) (string, error)
	}); ok {
		return own.ReadLevel(ctx, uri, level)
	}
	text, err := s.Read(ctx, uri)
	if errors.Is(err, ErrNotFound) {
		text, err = readBelow(ctx, s, uri, err)
	}
	if err != nil {
		return "", err
	}
	switch level {
	case LevelAbstract:
		return abstract(text), nil
	case LevelOverview:
		return overview(text), nil
	}
	return text, nil
}

// readBelow joins the notes below a name; without any it fails with none.
func readBelow(ctx context.Context, s Store, uri string, none error) (string, error) {
	uris, err := s.List(ctx, uri)
	if err != nil {
		return "", err
	}
	if len(uris) == 0 {
		return "", none
	}
	var b strings.Builder
	before := ""
	for _, name := range uris {
		text, err := s.Read(ctx, name)
		if errors.Is(err, ErrNotFound) {
			continue // it was removed in the meantime
		}
		if err != nil {
			return "", err
		}
		if last, _ := utf8.DecodeLastRuneInString(b.String()); b.Len() > 0 && !unicode.IsSpace(last) && !continues(before, name) {
			b.WriteString("\n\n")
		}
		before = name
		if b.Len()+len(text) > maxBelow {
			return "", fmt.Errorf("%w: the notes below %s have more than %d bytes: use a longer name", ErrTooLarge, uri, maxBelow)
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// continues reports whether a note is the next passage of a resource after another.
func continues(before, name string) bool {
	at := strings.LastIndexByte(before, '/')
	n, err := strconv.Atoi(before[at+1:])
	return err == nil && before == passage(before[:max(at, 0)], n) && name == passage(before[:max(at, 0)], n+1)
}

// paragraphs returns the parts of a text between blank lines, and its Markdown headings,
// each on one line.
func paragraphs(text string) (all []string) {
	var open []string
	end := func() {
		if len(open) > 0 {
			all = append(all, strings.Join(open, " "))
		}
		open = nil
	}
	for line := range strings.Lines(text) {
		line = strings.Join(strings.Fields(line), " ")
		switch {
		case line == "":
			end()
		case heading(line):
			end()
			all = append(all, line)
		default:
			open = append(open, line)
		}
	}
	end()
	return all
}

func heading(line string) bool {
	rest := strings.TrimLeft(line, "#")
	return rest != line && len(line)-len(rest) <= 6 && strings.HasPrefix(rest, " ")
}

func abstract(text string) string {
	title := ""
	for _, p := range paragraphs(text) {
		if !heading(p) {
			return cut(title+p, maxAbstract)
		}
		title = strings.TrimLeft(p, "# ") + ": "
	}
	return cut(strings.TrimSuffix(title, ": "), maxAbstract)
}

func overview(text string) string {
	var b strings.Builder
	for _, p := range paragraphs(text) {
		line := p
		if !heading(p) {
			line = cut(sentence(p), maxAbstract)
		}
		if b.Len()+len(line)+len("\n…") > maxOverview {
			b.WriteString("\n…")
			break
		}
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		b.WriteString(line)
	}
	return b.String()
}

// sentence returns the first sentence of a paragraph.
func sentence(p string) string {
	for i, r := range p {
		end := i + utf8.RuneLen(r)
		switch r {
		case '.', '!', '?', ':':
			if end == len(p) || p[end] == ' ' {
				return p[:end]
			}
		case '。', '！', '？':
			return p[:end]
		}
	}
	return p
}

// cut shortens a text to n bytes, between words if it has some.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	n -= len("…")
	for !utf8.RuneStart(text[n]) {
		n--
	}
	text = text[:n]
	if at := strings.LastIndexByte(text, ' '); at > n/2 {
		text = text[:at]
	}
	return text + "…"
}
