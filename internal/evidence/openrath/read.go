package openrath

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/session"
)

// MaxLine is the maximum size of a line in bytes.
const MaxLine = 64 << 20

// Read reads a session file. name is its name in errors.
func Read(r io.Reader, name string) (*File, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	var f File
	header := false
	for n := 1; ; n++ {
		line, err := readLine(in)
		switch {
		case errors.Is(err, io.EOF):
			// The writer ends each record with a line feed, so this one was
			// truncated, possibly inside a character.
			f.Torn = len(bytes.TrimSpace(line)) > 0
			if !header {
				return nil, fmt.Errorf("openrath: %s:%d: %w: no header", name, n, ErrFormat)
			}
			return &f, nil
		case err != nil:
			return nil, fmt.Errorf("openrath: %s:%d: %w", name, n, err)
		case len(bytes.TrimSpace(line)) == 0:
			continue
		}
		if err := f.record(line, &header); err != nil {
			return nil, fmt.Errorf("openrath: %s:%d: %w", name, n, err)
		}
	}
}

// readLine returns the bytes before the next line feed. With io.EOF it returns the bytes
// after the last one.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > MaxLine:
			return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrFormat, MaxLine)
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

func (f *File) record(line []byte, header *bool) error {
	if !utf8.Valid(line) {
		return fmt.Errorf("%w: not UTF-8", ErrFormat)
	}
	all, err := fields(line)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	var kind string
	for _, fl := range all {
		if fl.name == "record_type" {
			if err := json.Unmarshal([]byte(fl.value), &kind); err != nil {
				return fmt.Errorf("%w: record_type %s", ErrFormat, fl.value)
			}
		}
	}
	if kind != "header" && !*header {
		return fmt.Errorf("%w: %q comes before the header", ErrFormat, kind)
	}
	switch kind {
	case "header":
		var h Header
		if err := h.read(all); err != nil {
			return err
		}
		if *header {
			if h.ID != f.Header.ID {
				return fmt.Errorf("%w: a second header, of session %s", ErrFormat, h.ID)
			}
			f.Reopened++
			f.Trailer = nil
			return nil
		}
		f.Header, *header = h, true
	case "chunk":
		var r Row
		if err := r.read(all); err != nil {
			return err
		}
		f.Rows = append(f.Rows, r)
	case "trailer":
		f.Trailer = &Trailer{}
		return f.Trailer.read(all)
	case "":
		return fmt.Errorf("%w: a record without a type", ErrFormat)
	default:
		f.Other = append(f.Other, Other{Type: kind, Rows: len(f.Rows), JSON: object(all)})
	}
	return nil
}

// decode reads a field that may be absent or null.
func decode(known map[string]string, name string, into any) error {
	v, ok := known[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal([]byte(v), into); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrFormat, name, err)
	}
	return nil
}

func (h *Header) read(all []field) error {
	known, unknown := split(all, "record_type", "schema_version", "id", "created_at", "parent_session_ids", "lineage_operator",
		"lineage_kind", "lineage_extras", "sandbox_backend", "sandbox_spec", "sandbox_handle_id")
	h.unknown = unknown
	var schema int
	if err := decode(known, "schema_version", &schema); err != nil {
		return err
	}
	if schema > Schema {
		return fmt.Errorf("%w: schema %d, at most %d is read", ErrNewer, schema, Schema)
	}
	if schema < 1 {
		return fmt.Errorf("%w: schema %d", ErrFormat, schema)
	}
	var extras [][]json.RawMessage
	err := errors.Join(
		decode(known, "id", &h.ID), decode(known, "created_at", &h.CreatedAt), decode(known, "parent_session_ids", &h.Parents),
		decode(known, "lineage_operator", &h.Operator), decode(known, "lineage_kind", &h.Kind), decode(known, "lineage_extras", &extras),
		decode(known, "sandbox_backend", &h.Backend), decode(known, "sandbox_handle_id", &h.Handle),
	)
	if err != nil {
		return err
	}
	if h.ID == "" {
		return fmt.Errorf("%w: a header without an id", ErrFormat)
	}
	for _, pair := range extras {
		var e Extra
		if len(pair) != 2 || json.Unmarshal(pair[0], &e.Key) != nil {
			return fmt.Errorf("%w: lineage_extras are not pairs of a name and a value", ErrFormat)
		}
		e.Value = pair[1]
		h.Extras = append(h.Extras, e)
	}
	if spec := known["sandbox_spec"]; spec != "" && spec != "null" {
		h.Spec = json.RawMessage(spec)
	}
	return nil
}

type payload struct {
	Content    *string `json:"content"`
	Name       string  `json:"name"`
	ToolCallID string  `json:"tool_call_id"`
	ToolCalls  []struct {
		Function struct {
			Arguments string `json:"arguments"`
			Name      string `json:"name"`
		} `json:"function"`
		ID string `json:"id"`
	} `json:"tool_calls"`
}

func (r *Row) read(all []field) error {
	known, unknown := split(all, "record_type", "index", "kind", "payload")
	r.unknown, r.payload = unknown, known["payload"]
	var kind string
	if err := decode(known, "kind", &kind); err != nil {
		return err
	}
	if kind == "" || r.payload == "" {
		return fmt.Errorf("%w: a chunk without kind or payload", ErrFormat)
	}
	var p payload
	switch k := session.Kind(kind); k {
	case session.System, session.User, session.Assistant, session.ToolResult:
		if err := decode(known, "payload", &p); err != nil {
			return err
		}
	default:
		return r.opaque(kind)
	}
	content := ""
	if p.Content != nil {
		content = *p.Content
	}
	switch session.Kind(kind) {
	case session.System:
		r.Chunk = session.SystemText(content)
	case session.User:
		r.Chunk = session.UserText(content)
	case session.Assistant:
		calls := make([]session.ToolCall, len(p.ToolCalls))
		for i, c := range p.ToolCalls {
			calls[i] = session.ToolCall{Args: c.Function.Arguments, ID: c.ID, Name: c.Function.Name}
		}
		r.Chunk = session.AssistantText(content, calls...)
	case session.ToolResult:
		r.Chunk = session.Result(p.ToolCallID, p.Name, content, failed(content))
	}
	return nil
}

// opaque sets the chunk of a row of an unknown kind.
func (r *Row) opaque(kind string) error {
	data, err := canonical.Marshal(map[string]string{"kind": kind, "text": "", "opaque": r.payload})
	if err != nil {
		return fmt.Errorf("%w: kind %q: %w", ErrFormat, kind, err)
	}
	r.Chunk, err = session.DecodeChunk(session.Event{Kind: session.KindChunk, Schema: session.Schema, Data: data})
	return err
}

// failed reports whether a tool result is one of the format's error bodies.
func failed(content string) bool {
	var body struct {
		OK    *bool  `json:"ok"`
		Error string `json:"error_kind"`
	}
	return json.Unmarshal([]byte(content), &body) == nil && body.OK != nil && !*body.OK && body.Error != ""
}

func (t *Trailer) read(all []field) error {
	known, unknown := split(all, "record_type", "closed_at", "final_chunk_count", "cumulative_usage")
	t.unknown = unknown
	return errors.Join(decode(known, "closed_at", &t.ClosedAt), decode(known, "final_chunk_count", &t.Chunks), decode(known, "cumulative_usage", &t.Usage))
}

// Listed is a session file of a directory.
type Listed struct {
	Name     string // of the file
	ID       string
	Created  string // as written
	Kind     string // of the lineage
	Parents  []string
	Chunks   int
	Closed   bool
	Reopened int
	Torn     bool
	Err      error // of reading the file; the fields above may then be empty
}

// Scan reads the session files of a directory: the closed ones, and unclosed ones without
// a closed file of the same id. The files are sorted by time of creation, except that
// parents precede their children; unreadable files are last.
func Scan(fsys fs.FS, dir string) ([]Listed, error) {
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("openrath: %w", err)
	}
	final := map[string]bool{}
	for _, e := range entries {
		final[e.Name()] = true
	}
	var all []Listed
	for _, e := range entries {
		base := strings.TrimSuffix(e.Name(), Partial)
		if e.IsDir() || !strings.HasSuffix(base, ".jsonl") || base != e.Name() && final[base] {
			continue
		}
		l := Listed{Name: e.Name()}
		if f, err := ReadFile(fsys, path.Join(dir, e.Name())); err != nil {
			l.Err = err
		} else {
			l.ID, l.Created, l.Kind, l.Parents = f.Header.ID, f.Header.CreatedAt, f.Header.Kind, f.Header.Parents
			l.Chunks, l.Closed, l.Reopened, l.Torn = len(f.Rows), f.Closed(), f.Reopened, f.Torn
		}
		all = append(all, l)
	}
	slices.SortStableFunc(all, func(a, b Listed) int {
		if (a.Err == nil) != (b.Err == nil) {
			if a.Err == nil {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Created, b.Created)
	})
	return parentsFirst(all), nil
}

// parentsFirst moves files after the files of their parents. It keeps the order of files
// that are each other's parents.
func parentsFirst(all []Listed) []Listed {
	out, at, placed := make([]Listed, 0, len(all)), map[string]int{}, make([]bool, len(all))
	for i, l := range all {
		if l.ID != "" {
			at[l.ID] = i
		}
	}
	type visit struct{ file, parent int }
	for i := range all {
		if placed[i] {
			continue
		}
		placed[i] = true
		for path := []visit{{i, 0}}; len(path) > 0; {
			v := &path[len(path)-1]
			if v.parent == len(all[v.file].Parents) {
				out, path = append(out, all[v.file]), path[:len(path)-1]
				continue
			}
			p, ok := at[all[v.file].Parents[v.parent]]
			v.parent++
			if ok && !placed[p] {
				placed[p] = true
				path = append(path, visit{p, 0})
			}
		}
	}
	return out
}

// ReadFile reads a session file of a file system.
func ReadFile(fsys fs.FS, name string) (*File, error) {
	in, err := fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("openrath: %w", err)
	}
	f, err := Read(in, name)
	if closeErr := in.Close(); err == nil && closeErr != nil {
		return nil, fmt.Errorf("openrath: %s: %w", name, closeErr)
	}
	return f, err
}
