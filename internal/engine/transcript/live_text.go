package transcript

import "strings"

// LiveText splits the thoughts at the beginning of an answer from its text while the
// answer streams, as [SplitThoughts] does with a whole one. The zero value with a prompt
// is ready to use.
type LiveText struct {
	Prompt string
	held   string // received, and may be the beginning of a mark
	end    string // the mark that ends the current thoughts
	open   bool   // the answer itself has begun
	trim   bool   // white space before it is omitted
	// line is the current line while it can become a stray end of thoughts, which stray
	// enables. whole is set at its beginning, and tail is the end of the text before it.
	stray, whole bool
	line, tail   string
}

// Take adds a piece of the text and splits it, with the text held back before, into
// thought and answer. void means that the answer so far was thought.
func (l *LiveText) Take(piece string) (thought, answer string, void bool) {
	if l.open {
		answer, void = l.answer(piece)
		return "", answer, void
	}
	l.held += piece
	if l.end == "" && !l.begins() {
		return "", "", false
	}
	if l.end == "" {
		answer, void = l.answer(l.release())
		return "", answer, void
	}
	before, after, found := strings.Cut(l.held, l.end)
	if !found {
		keep := partial(l.held, l.end)
		thought, l.held = l.held[:len(l.held)-keep], l.held[len(l.held)-keep:]
		return thought, "", false
	}
	l.held, l.open, l.trim = "", true, true
	answer, _ = l.answer(after)
	return before, answer, false
}

// Finish ends the answer and returns the held back text.
func (l *LiveText) Finish() (thought, answer string, void bool) {
	if l.end != "" {
		return l.release(), "", false
	}
	return "", l.release(), l.stray && l.isEnd()
}

func (l *LiveText) release() string {
	text := l.held
	l.held = ""
	return text
}

// begins reports whether the beginning of the answer is determined: with a mark of
// thoughts, whose end it stores in end, or without one.
func (l *LiveText) begins() bool {
	body, clear := strings.TrimLeft(l.held, " \t\r\n"), true
	for _, mark := range thoughtMarks {
		switch {
		case strings.Contains(l.Prompt, mark[0]):
		case strings.HasPrefix(body, mark[0]):
			l.held, l.end = body[len(mark[0]):], mark[1]
			return true
		case strings.HasPrefix(mark[0], body):
			clear = false
		}
	}
	if clear {
		l.open, l.stray, l.whole = true, !strings.Contains(l.Prompt, "</think>"), true
	}
	return clear
}

// answer processes a piece of the answer itself.
func (l *LiveText) answer(piece string) (text string, void bool) {
	if l.stray {
		if rest, ended := l.strayEnd(piece); ended {
			l.stray, l.trim, void, piece = false, true, true, rest
		}
	}
	if l.trim {
		piece = strings.TrimLeft(piece, "\r\n\t ")
		l.trim = piece == ""
	}
	return piece, void
}

// strayEnd detects a line that ends thoughts without a beginning, and returns the text
// after it.
func (l *LiveText) strayEnd(piece string) (rest string, ended bool) {
	if l.tail += piece; strings.Contains(l.tail, "<think>") {
		l.stray = false
		return "", false
	}
	l.tail = l.tail[max(0, len(l.tail)-len("<think>")+1):]
	for {
		part, after, more := strings.Cut(piece, "\n")
		if l.whole {
			l.line = strings.TrimLeft(l.line+part, " \t")
			l.whole = strings.HasPrefix("</think>", l.line) || l.isEnd()
		}
		if !more {
			return "", false
		}
		if l.isEnd() {
			return after, true
		}
		l.line, l.whole, piece = "", true, after
	}
}

// isEnd reports whether the current line is the end of thoughts.
func (l *LiveText) isEnd() bool {
	return l.whole && strings.TrimRight(l.line, " \t") == "</think>"
}

// partial returns the number of bytes at the end of a text that begin a mark.
func partial(text, mark string) int {
	for n := min(len(text), len(mark)-1); n > 0; n-- {
		if strings.HasSuffix(text, mark[:n]) {
			return n
		}
	}
	return 0
}
