package tool

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rathcluster/rath/sandbox"
)

// Limits of the tools that touch files.
const (
	MaxShown   = 12_000   // characters shown of a file, half head, half tail
	MaxScanned = 64 << 20 // bytes read of a file to show a part of it
	MaxEntries = 500      // entries listed of a directory
)

type readArgs struct {
	Path   string `json:"path" jsonschema:"name of the file, relative to the workspace"`
	Offset int64  `json:"offset,omitempty" jsonschema:"line to start at, the first is 1"`
	Limit  int64  `json:"limit,omitempty" jsonschema:"number of lines to read"`
	// CharOffset and CharLimit lead into a long line.
	CharOffset int64 `json:"char_offset,omitempty" jsonschema:"character of the first of these lines to start at, the first is 1"`
	CharLimit  int64 `json:"char_limit,omitempty" jsonschema:"number of characters to read"`
	// Numbered is for models that refer to lines by number.
	Numbered bool `json:"numbered,omitempty" jsonschema:"begin each line with its number and a tab"`
}

func (in *readArgs) names() []*string { return []*string{&in.Path} }

type readBody struct {
	Data      string   `json:"data"`
	Truncated *cutFile `json:"truncated,omitempty"`
	// Lossy reports whether invalid UTF-8 in the file was replaced.
	Lossy bool `json:"lossy,omitempty"`
}

// cutFile is the full length of a text that is shown in part.
type cutFile struct {
	Chars int64 `json:"chars"`
	Lines int64 `json:"lines"`
}

func readWorkspaceFile() Tool {
	return builtin(ReadWorkspaceFile,
		"Reads a text file of the workspace. Of a long one the head and the tail are shown: read on with offset and limit, and within a long line with char_offset and char_limit.",
		ReadOnly, func(p map[string]*jsonschema.Schema) {
			for _, name := range []string{"offset", "limit", "char_offset", "char_limit"} {
				p[name].Minimum = new(1.0)
			}
		}, read)
}

func read(ctx context.Context, _ Call, sb sandbox.Sandbox, in readArgs) (_ any, err error) {
	f, err := sb.Files().Open(ctx, in.Path)
	if err != nil {
		return nil, pathFailure(in.Path, err)
	}
	defer func() {
		if closeErr := f.Close(); err == nil && closeErr != nil {
			err = pathFailure(in.Path, closeErr)
		}
	}()
	e := excerpt{numbered: in.Numbered, skip: max(in.CharOffset-1, 0), most: in.CharLimit}
	if err := e.read(f, in.Offset, in.Limit); err != nil {
		if errors.Is(err, errScanned) {
			return nil, &Failure{
				Kind: TooLarge, Detail: in.Path,
				Message: fmt.Sprintf("%q has more than %d MiB before the part is complete: use %s with head, tail, sed or grep",
					in.Path, MaxScanned>>20, RunShellCommand),
			}
		}
		return nil, pathFailure(in.Path, err)
	}
	body := readBody{Data: e.text(), Lossy: e.lossy}
	if e.chars > MaxShown {
		body.Truncated = &cutFile{Chars: e.chars, Lines: e.lines}
	}
	return body, nil
}

var errScanned = errors.New("tool: file too long")

// excerpt keeps the first and the last characters of a part of a text.
type excerpt struct {
	head  []rune // up to MaxShown
	tail  []rune // a ring of MaxShown/2, used once head is full
	chars int64
	lines int64
	lossy bool

	numbered bool
	skip     int64 // characters of the first line to skip
	most     int64 // characters to take, 0 for all
}

// read reads at most limit lines, beginning at line offset. An offset of 0 is the first
// line; a limit of 0 means all lines.
func (e *excerpt) read(r io.Reader, offset, limit int64) error {
	b := bufio.NewReaderSize(r, 64<<10)
	line, begun, taken, scanned := int64(1), int64(0), int64(0), 0 // begun: the last line that has a character
	for {
		if limit > 0 && line >= max(offset, 1)+limit {
			return nil
		}
		c, n, err := b.ReadRune()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if scanned += n; scanned > MaxScanned {
			return errScanned
		}
		switch {
		case line < offset:
		case line == max(offset, 1) && e.skip > 0 && c != '\n':
			e.skip--
		case e.most > 0 && taken == e.most:
			return nil
		default:
			taken++
			e.lossy = e.lossy || c == '\ufffd' && n == 1
			if begun != line {
				begun = line
				e.lines++
				e.number(line)
			}
			e.add(c)
		}
		if c == '\n' {
			line++
		}
	}
}

func (e *excerpt) number(line int64) {
	if !e.numbered {
		return
	}
	for _, c := range fmt.Sprintf("%6d\t", line) {
		e.add(c)
	}
}

func (e *excerpt) add(c rune) {
	switch {
	case e.chars < MaxShown:
		e.head = append(e.head, c)
	case e.chars == MaxShown:
		e.tail = append(make([]rune, 0, MaxShown/2), e.head[MaxShown/2:]...)
		e.tail[0] = c // the ring's oldest place: chars counts from a multiple of its length
	default:
		e.tail[e.chars%(MaxShown/2)] = c
	}
	e.chars++
}

func (e *excerpt) text() string {
	if e.chars <= MaxShown {
		return string(e.head)
	}
	oldest := e.chars % (MaxShown / 2)
	return fmt.Sprintf("%s\n[... %d characters cut ...]\n%s%s",
		string(e.head[:MaxShown/2]), e.chars-MaxShown, string(e.tail[oldest:]), string(e.tail[:oldest]))
}

type writeArgs struct {
	Path    string `json:"path" jsonschema:"name of the file, relative to the workspace"`
	Content string `json:"content" jsonschema:"the whole new content"`
}

func (in *writeArgs) names() []*string { return []*string{&in.Path} }

type writeBody struct {
	BytesWritten int `json:"bytes_written"`
}

func writeWorkspaceFile() Tool {
	return builtin(WriteWorkspaceFile,
		"Writes a text file of the workspace, replacing what it held and making its directories.",
		Sandboxed, nil, write)
}

func write(ctx context.Context, _ Call, sb sandbox.Sandbox, in writeArgs) (any, error) {
	if err := readLossy(ctx, sb, in.Path); err != nil {
		return nil, err
	}
	if err := writeText(ctx, sb, in.Path, in.Content); err != nil {
		return nil, err
	}
	return writeBody{len(in.Content)}, nil
}

// readLossy rejects replacing a file that is not UTF-8: the model saw replacement
// characters for some of its bytes and would write those.
func readLossy(ctx context.Context, sb sandbox.Sandbox, name string) error {
	f, err := sb.Files().Open(ctx, name)
	if err != nil {
		return nil // the file does not exist, or Create reports why it cannot be replaced
	}
	var e excerpt
	err = e.read(f, 0, 0)
	if err = errors.Join(err, f.Close()); err != nil && !errors.Is(err, errScanned) {
		return pathFailure(name, err)
	}
	if !e.lossy {
		return nil
	}
	return &Failure{Kind: NotText, Detail: name, Message: fmt.Sprintf(
		"%q is not UTF-8: reading it is lossy, and writing it whole would lose bytes. Use %s or %s, which keep all that they do not change. To replace it all the same, delete it first, by %s or %s",
		name, Edit, ApplyPatch, ApplyPatch, RunShellCommand)}
}

type listArgs struct {
	Path string `json:"path,omitempty" jsonschema:"name of the directory, relative to the workspace"`
}

func (in *listArgs) names() []*string { return []*string{&in.Path} }

type listBody struct {
	Entries   []listEntry `json:"entries"`
	Truncated *cutList    `json:"truncated,omitempty"`
}

type listEntry struct {
	Name  string `json:"name"`
	Path  string `json:"path"`
	IsDir bool   `json:"is_dir"`
}

type cutList struct {
	Entries int `json:"entries"` // that there are
}

func listWorkspaceFiles() Tool {
	return builtin(ListWorkspaceFiles,
		"Lists the entries of a directory of the workspace by name, at most 500, without those of its subdirectories.",
		ReadOnly, func(p map[string]*jsonschema.Schema) {
			p["path"].Default = []byte(`"."`)
		}, list)
}

func list(ctx context.Context, _ Call, sb sandbox.Sandbox, in listArgs) (any, error) {
	if in.Path == "" {
		in.Path = "."
	}
	entries, err := sb.Files().List(ctx, in.Path)
	if err != nil {
		return nil, pathFailure(in.Path, err)
	}
	body := listBody{Entries: make([]listEntry, 0, min(len(entries), MaxEntries))}
	for _, e := range entries[:min(len(entries), MaxEntries)] {
		body.Entries = append(body.Entries, listEntry{Name: e.Name, Path: e.Path, IsDir: e.Dir})
	}
	if len(entries) > MaxEntries {
		body.Truncated = &cutList{len(entries)}
	}
	return body, nil
}

type existsArgs struct {
	Path string `json:"path" jsonschema:"name of a file or directory, relative to the workspace"`
}

func (in *existsArgs) names() []*string { return []*string{&in.Path} }

type existsBody struct {
	OK bool `json:"ok"`
}

func workspacePathExists() Tool {
	return builtin(WorkspacePathExists,
		"Says whether a file or directory is in the workspace.",
		ReadOnly, nil, exists)
}

func exists(ctx context.Context, _ Call, sb sandbox.Sandbox, in existsArgs) (any, error) {
	_, err := sb.Files().Stat(ctx, in.Path)
	switch {
	case err == nil:
		return existsBody{true}, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return existsBody{false}, nil // to the tools, an unreachable file does not exist
	}
	return nil, pathFailure(in.Path, err)
}
