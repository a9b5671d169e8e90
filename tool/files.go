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
	// Numbered is for models that talk about lines.
	Numbered bool `json:"numbered,omitempty" jsonschema:"begin each line with its number and a tab"`
}

type readBody struct {
	Data      string   `json:"data"`
	Truncated *cutFile `json:"truncated,omitempty"`
	// Lossy says that the file is not UTF-8: bytes of it were replaced.
	Lossy bool `json:"lossy,omitempty"`
}

// cutFile says how much there was of what was shown in part.
type cutFile struct {
	Chars int64 `json:"chars"`
	Lines int64 `json:"lines"`
}

func readWorkspaceFile() Tool {
	return builtin(ReadWorkspaceFile,
		"Reads a text file of the workspace. Of a long one the head and the tail are shown: read on with offset and limit.",
		ReadOnly, func(p map[string]*jsonschema.Schema) {
			p["offset"].Minimum, p["limit"].Minimum = new(1.0), new(1.0)
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
	e := excerpt{numbered: in.Numbered}
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
}

// read takes the lines from offset on, at most limit of them; 0 means from the
// first, and all.
func (e *excerpt) read(r io.Reader, offset, limit int64) error {
	b := bufio.NewReaderSize(r, 64<<10)
	line, scanned, open := int64(1), 0, false // open: the line has a character already
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
		if line >= offset {
			e.lossy = e.lossy || c == '\ufffd' && n == 1
			if !open {
				e.lines++
				e.number(line)
			}
			e.add(c)
		}
		open = true
		if c == '\n' {
			line++
			open = false
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

type writeBody struct {
	BytesWritten int `json:"bytes_written"`
}

func writeWorkspaceFile() Tool {
	return builtin(WriteWorkspaceFile,
		"Writes a text file of the workspace, replacing what it held and making its directories.",
		Sandboxed, nil, write)
}

func write(ctx context.Context, _ Call, sb sandbox.Sandbox, in writeArgs) (any, error) {
	if err := writeText(ctx, sb, in.Path, in.Content); err != nil {
		return nil, err
	}
	return writeBody{len(in.Content)}, nil
}

type listArgs struct {
	Path string `json:"path,omitempty" jsonschema:"name of the directory, relative to the workspace"`
}

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
		return existsBody{false}, nil // what cannot be reached is not there for the tools
	}
	return nil, pathFailure(in.Path, err)
}
