package openrath

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/session"
)

// Export returns a session as a file. created and closed are the times of the
// session's beginning and end; a zero closed leaves the file open. OpenRath names
// sessions by UUIDs, so [UUID] makes the ids of the file and of its parents.
func Export(s session.Session, created, closed time.Time) *File {
	f := &File{Header: Header{ID: UUID(s.Key()), CreatedAt: Timestamp(created)}}
	h := &f.Header
	for l := range s.Parents() {
		h.Parents = append(h.Parents, UUID(l.Key))
	}
	h.Kind, h.Operator = lineage(s)
	if p := s.Placement(); p.Backend != "" {
		h.Backend = &p.Backend
		if p.Backend == "local" && p.Spec != "" {
			h.Spec = json.RawMessage(object([]field{
				{"image", "null"}, {"entrypoint", "null"}, {"env", "null"}, {"timeout_seconds", "null"}, {"working_dir", text(p.Spec)},
			}))
		}
	}
	for _, c := range s.Chunks() {
		f.Rows = append(f.Rows, Row{Chunk: c, unknown: pictures(c)})
	}
	if !closed.IsZero() {
		f.Trailer = &Trailer{ClosedAt: Timestamp(closed), Chunks: len(f.Rows)}
		if u := s.Usage(); u != (session.Usage{}) {
			f.Trailer.Usage = &Usage{Prompt: u.Input, Completion: u.Output, Total: u.Tokens()}
		}
	}
	return f
}

// pictures returns a field that names the images of a row, for which OpenRath's rows have
// no field.
func pictures(c session.Chunk) []field {
	if len(c.Images()) == 0 {
		return nil
	}
	all := make([]string, len(c.Images()))
	for i, img := range c.Images() {
		all[i] = object([]field{{"type", text(img.Type)}, {"size", strconv.FormatInt(img.Size, 10)}, {"sha256", text(img.Digest.String())}})
	}
	return []field{{"images", "[" + strings.Join(all, ", ") + "]"}}
}

// lineage returns OpenRath's terms for the origin of a session.
func lineage(s session.Session) (kind, operator string) {
	switch s.Opening().Kind {
	case session.OpenFork, session.OpenImplicit:
		return "op_fork", "Session.fork"
	case session.OpenDetach:
		return "op_detach", "Session.detach"
	case session.OpenMerge:
		return "op_merge", "Session.merge"
	case session.OpenCompress:
		return "op_session_compress", "run_session_compress"
	case session.OpenLeaf, "":
		switch c, _ := s.At(0); c.Kind() {
		case session.User:
			return "leaf_user", "Session.create"
		case session.System:
			return "leaf_system", "Session.create"
		}
	}
	return "unknown", "implicit"
}

// UUID returns the UUID under which a session of Rath is exported: a version 8 UUID
// derived from its key.
func UUID(k session.Key) string {
	sum := sha256.Sum256([]byte(k.String()))
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Write writes the file. The contents of a file that was read with the separators of the
// format are written byte for byte unchanged.
func (f *File) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	line := func(text string) {
		out.WriteString(text)
		out.WriteByte('\n')
	}
	line(f.Header.record())
	other := f.Other
	for i := 0; i <= len(f.Rows); i++ {
		for len(other) > 0 && other[0].Rows <= i {
			line(other[0].JSON)
			other = other[1:]
		}
		if i < len(f.Rows) {
			line(f.Rows[i].record(i))
		}
	}
	if f.Trailer != nil {
		line(f.Trailer.record(len(f.Rows)))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("openrath: write session %s: %w", f.Header.ID, err)
	}
	return nil
}

// record returns the line of a header.
func (h *Header) record() string { return object(append(h.fields(), h.unknown...)) }

// record returns the line of the i-th row.
func (r Row) record(i int) string {
	kind, payload := r.fields()
	return object(append([]field{{"record_type", typeChunk}, {"index", strconv.Itoa(i)}, {"kind", text(kind)}, {"payload", payload}}, r.unknown...))
}

// record returns the line of a trailer after a number of rows.
func (t *Trailer) record(rows int) string {
	usage := "null"
	if t.Usage != nil {
		usage = object([]field{
			{"prompt_tokens", strconv.FormatInt(t.Usage.Prompt, 10)},
			{"completion_tokens", strconv.FormatInt(t.Usage.Completion, 10)},
			{"total_tokens", strconv.FormatInt(t.Usage.Total, 10)},
		})
	}
	return object(append([]field{
		{"record_type", typeTrailer},
		{"closed_at", text(t.ClosedAt)},
		{"final_chunk_count", strconv.Itoa(rows)},
		{"cumulative_usage", usage},
	}, t.unknown...))
}

// The types of records, as JSON.
const (
	typeHeader  = `"header"`
	typeChunk   = `"chunk"`
	typeTrailer = `"trailer"`
)

func (h *Header) fields() []field {
	parents := make([]string, len(h.Parents))
	for i, p := range h.Parents {
		parents[i] = text(p)
	}
	extras := make([]string, len(h.Extras))
	for i, e := range h.Extras {
		extras[i] = "[" + text(e.Key) + ", " + string(e.Value) + "]"
	}
	spec := "null"
	if len(h.Spec) > 0 {
		spec = string(h.Spec)
	}
	return []field{
		{"record_type", typeHeader},
		{"schema_version", strconv.Itoa(Schema)},
		{"id", text(h.ID)},
		{"created_at", text(h.CreatedAt)},
		{"parent_session_ids", "[" + strings.Join(parents, ", ") + "]"},
		{"lineage_operator", text(h.Operator)},
		{"lineage_kind", text(h.Kind)},
		{"lineage_extras", "[" + strings.Join(extras, ", ") + "]"},
		{"sandbox_backend", textOrNull(h.Backend)},
		{"sandbox_spec", spec},
		{"sandbox_handle_id", textOrNull(h.Handle)},
	}
}

// fields returns the kind and the payload of a row.
func (r Row) fields() (kind, payload string) {
	c := r.Chunk
	kind = string(c.Kind())
	if r.payload != "" {
		return kind, r.payload
	}
	switch c.Kind() {
	case session.Assistant:
		content, calls := "null", "null"
		if c.Text() != "" {
			content = text(c.Text())
		}
		if c.CallCount() > 0 {
			var all []string
			for _, call := range c.Calls() {
				function := object([]field{{"name", text(call.Name)}, {"arguments", text(call.Args)}})
				all = append(all, object([]field{{"id", text(call.ID)}, {"type", `"function"`}, {"function", function}}))
			}
			calls = "[" + strings.Join(all, ", ") + "]"
		}
		return kind, object([]field{{"content", content}, {"tool_calls", calls}})
	case session.ToolResult:
		return kind, object([]field{{"tool_call_id", text(c.CallID())}, {"name", text(c.Name())}, {"content", text(c.Text())}})
	case session.System, session.User:
		return kind, object([]field{{"content", text(c.Text())}})
	}
	if raw, err := reprint([]byte(c.Opaque())); err == nil && strings.HasPrefix(raw, "{") {
		return kind, raw // it was imported from a file of OpenRath
	}
	return kind, object([]field{{"content", text(c.Text())}})
}
