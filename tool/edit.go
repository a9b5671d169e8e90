package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rathcluster/rath/sandbox"
)

// MaxEdited is the maximum size of a file for Edit, ApplyPatch and Grep, in bytes.
const MaxEdited = 4 << 20

type editArgs struct {
	Path string `json:"path" jsonschema:"name of the file, relative to the workspace"`
	Old  string `json:"old_string" jsonschema:"what to replace, exactly as it is in the file, with as much around it as makes it unique"`
	New  string `json:"new_string" jsonschema:"what to put in its place"`
	All  bool   `json:"replace_all,omitempty" jsonschema:"replace it wherever it is"`
}

func (in *editArgs) names() []*string { return []*string{&in.Path} }

type editBody struct {
	Replaced int   `json:"replaced"`
	Lines    []int `json:"lines"` // at which the first of the new texts begin
}

func edit() Tool {
	return builtin(Edit,
		"Replaces a text in a file of the workspace. old_string must be in the file exactly once, unless replace_all is set.",
		Sandboxed, func(p map[string]*jsonschema.Schema) { p["old_string"].MinLength = new(1) }, replace)
}

func replace(ctx context.Context, _ Call, sb sandbox.Sandbox, in editArgs) (any, error) {
	if in.Old == in.New {
		return nil, &Failure{Kind: InvalidArguments, Message: "old_string and new_string are the same: there is nothing to replace"}
	}
	text, err := readText(ctx, sb, in.Path)
	if err != nil {
		return nil, err
	}
	text, marked := strings.CutPrefix(text, byteOrderMark)
	if marked {
		in.Old, in.New = strings.TrimPrefix(in.Old, byteOrderMark), strings.TrimPrefix(in.New, byteOrderMark)
		if in.Old == "" {
			return nil, &Failure{Kind: InvalidArguments, Message: "old_string is the byte order mark alone, which stays: take the text behind it"}
		}
	}
	in.fit(text)
	at := places(text, in.Old)
	switch {
	case len(at) == 0:
		return nil, &Failure{Kind: Mismatch, Detail: in.Path, Message: fmt.Sprintf("old_string is not in %q%s", in.Path, nearly(text, in.Old))}
	case len(at) > 1 && !in.All:
		return nil, &Failure{Kind: Mismatch, Detail: in.Path, Message: fmt.Sprintf(
			"old_string is %s times in %q, at lines %s: take more of the text around it into it, or set replace_all", atMost(len(at)), in.Path, listed(linesOf(text, at)))}
	}
	n := 1
	if in.All {
		n = strings.Count(text, in.Old)
	}
	if size := len(text) + n*(len(in.New)-len(in.Old)); size > MaxEdited {
		return nil, &Failure{Kind: TooLarge, Detail: in.Path, Message: fmt.Sprintf("%q would have %d bytes, at most %d are written", in.Path, size, MaxEdited)}
	}
	after := strings.Replace(text, in.Old, in.New, n)
	if err := keepsBytes(in.Path, text, after); err != nil {
		return nil, err
	}
	if marked {
		after = byteOrderMark + after
	}
	if err := writeText(ctx, sb, in.Path, after); err != nil {
		return nil, err
	}
	return editBody{n, in.lines(text, n)}, nil
}

// byteOrderMark begins the files of some editors. It is hidden from models, kept in the
// file, and ignored when lines are compared.
const byteOrderMark = "\ufeff"

// replacement is the character that models see for a byte that is not UTF-8.
const replacement = "\ufffd"

// shown returns a text as models see it.
func shown(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return string([]rune(text))
}

// keepsBytes rejects a change that writes replacement characters over the bytes that they
// stand for.
func keepsBytes(name, before, after string) error {
	if utf8.ValidString(before) || strings.Count(after, replacement) <= strings.Count(before, replacement) {
		return nil
	}
	return &Failure{Kind: NotText, Detail: name, Message: fmt.Sprintf(
		"%q is not UTF-8, and the new text has U+FFFD, which stands for bytes of the file that were not shown: change a part of the line without them, or use %s, such as sed; no file was changed", name, RunShellCommand)}
}

// fit converts the line endings of the texts, which models write as \n, to those of the
// file.
func (in *editArgs) fit(text string) {
	windows := strings.Count(text, "\r\n")
	if windows == 0 || windows < strings.Count(text, "\n") && strings.Contains(text, in.Old) {
		return
	}
	in.Old, in.New = windowsLines(in.Old), windowsLines(in.New)
}

func windowsLines(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r\n")
}

// maxShownLines is the maximum number of line numbers in a result.
const maxShownLines = 20

// lines returns where the first of n replacements begin in the new text.
func (in *editArgs) lines(text string, n int) []int {
	lines := make([]int, 0, min(n, maxShownLines))
	line := 1
	for range cap(lines) {
		before, after, _ := strings.Cut(text, in.Old)
		line += strings.Count(before, "\n")
		lines = append(lines, line)
		line += strings.Count(in.New, "\n")
		text = after
	}
	return lines
}

// maxPlaces is the maximum number of occurrences of a text that are searched.
const maxPlaces = 1000

// places returns the offsets of part in text, including overlapping occurrences.
func places(text, part string) (at []int) {
	for from := 0; len(at) < maxPlaces; {
		i := strings.Index(text[from:], part)
		if i < 0 {
			break
		}
		at = append(at, from+i)
		from += i + 1
	}
	return at
}

func atMost(n int) string {
	if n == maxPlaces {
		return fmt.Sprintf("%d or more", n)
	}
	return fmt.Sprint(n)
}

// linesOf returns the line numbers of the first offsets.
func linesOf(text string, at []int) (lines []int) {
	line, from := 1, 0
	for _, i := range at[:min(len(at), maxShownLines)] {
		line += strings.Count(text[from:i], "\n")
		from = i
		lines = append(lines, line)
	}
	return lines
}

func listed(lines []int) string {
	var b strings.Builder
	for i, n := range lines {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, n)
	}
	if len(lines) == maxShownLines {
		b.WriteString(", ...")
	}
	return b.String()
}

// maxNearly is the maximum number of lines for a search that ignores white space.
const maxNearly = 100

// nearly returns a hint: the lines that match if white space is ignored, or else advice to
// read the file again.
func nearly(text, part string) string {
	all, want := trimmed(text), trimmed(part)
	for len(want) > 0 && want[0] == "" {
		want = want[1:]
	}
	for len(want) > 0 && want[len(want)-1] == "" {
		want = want[:len(want)-1]
	}
	for i := 0; len(want) > 0 && len(want) <= maxNearly && i+len(want) <= len(all); i++ {
		if slices.Equal(all[i:i+len(want)], want) {
			return fmt.Sprintf(": lines %d to %d differ from it in white space alone; copy them as they are", i+1, i+len(want))
		}
	}
	return ": read the part of the file again and copy the text as it is, without numbers of lines"
}

func trimmed(text string) []string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return lines
}

// readText reads a whole text file for an edit.
func readText(ctx context.Context, sb sandbox.Sandbox, name string) (string, error) {
	text, err := readWhole(ctx, sb, name)
	if err == nil && strings.IndexByte(text, 0) >= 0 {
		err = &Failure{Kind: NotText, Detail: name, Message: fmt.Sprintf("%q is binary (it holds a zero byte) and is not edited: use %s", name, RunShellCommand)}
	}
	return text, err
}

func readWhole(ctx context.Context, sb sandbox.Sandbox, name string) (string, error) {
	f, err := sb.Files().Open(ctx, name)
	if err != nil {
		return "", pathFailure(name, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxEdited+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", pathFailure(name, err)
	}
	if len(data) > MaxEdited {
		return "", &Failure{Kind: TooLarge, Detail: name, Message: fmt.Sprintf("%q has more than %d MiB: change it with %s", name, MaxEdited>>20, RunShellCommand)}
	}
	return string(data), nil
}

func writeText(ctx context.Context, sb sandbox.Sandbox, name, text string) error {
	f, err := sb.Files().Create(ctx, name)
	if err != nil {
		return pathFailure(name, err)
	}
	_, err = io.WriteString(f, text)
	if err = errors.Join(err, f.Close()); err != nil {
		return pathFailure(name, err)
	}
	return nil
}
