package mirror

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A stream is a sequence of records, each a byte and the payload of its type:
//
//	f d l s  an entry; in a stream for Send the content of a file comes after it
//	n        a name
//	F E      the end, with the text of a *FullError or of another error
//	.        the end
//
// Content is a sequence of chunks. Each is a number and, for an even number, half as many
// bytes; an odd number is a hole of half that size. Zero is the end, and cutChunk an end
// with the text of an error. So no length is sent ahead of its data, and none can be wrong.
const (
	nameRecord  = 'n'
	endRecord   = '.'
	fullRecord  = 'F'
	errorRecord = 'E'

	chunk     = 64 << 10
	maxHole   = 1 << 40
	cutChunk  = (chunk + 1) << 1
	maxStamp  = 64
	maxReport = 4096 // bytes of an error
)

const (
	execFlag = 1 << iota
	settledFlag
	sumFlag
)

// writer encodes a stream. The first error sticks.
type writer struct {
	w    *bufio.Writer
	num  [binary.MaxVarintLen64]byte
	open bool // within a file's content
}

func newWriter(w io.Writer) *writer { return &writer{w: bufio.NewWriterSize(w, chunk)} }

func (w *writer) number(n uint64) { _, _ = w.w.Write(w.num[:binary.PutUvarint(w.num[:], n)]) }

func (w *writer) text(s string) {
	w.number(uint64(len(s)))
	_, _ = w.w.WriteString(s)
}

func (w *writer) name(s string) {
	_ = w.w.WriteByte(nameRecord)
	w.text(s)
}

func (w *writer) names(names []string) {
	for _, n := range names {
		w.name(n)
	}
	w.end(nil)
}

func (w *writer) entry(e Entry) {
	var flags byte
	if e.Exec {
		flags |= execFlag
	}
	if e.Settled {
		flags |= settledFlag
	}
	if e.Sum != (Entry{}).Sum {
		flags |= sumFlag
	}
	_, _ = w.w.Write([]byte{byte(e.Kind), flags})
	w.text(e.Path)
	w.number(uint64(e.Size)) //nolint:gosec // as it is read
	w.text(e.Target)
	w.text(e.Stamp)
	if flags&sumFlag != 0 {
		_, _ = w.w.Write(e.Sum[:])
	}
}

var zeros [chunk]byte

// content copies a file's content, as chunks.
func (w *writer) content(r io.Reader) error {
	buf := make([]byte, chunk)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			w.chunk(buf[:n])
		}
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			w.close()
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (w *writer) chunk(p []byte) {
	if len(p) == chunk && bytes.Equal(p, zeros[:]) {
		w.hole(chunk)
		return
	}
	w.number(uint64(len(p)) << 1)
	_, _ = w.w.Write(p)
}

func (w *writer) hole(n int64) { w.number(uint64(n)<<1 | 1) } //nolint:gosec // never negative

// file begins a file; its content follows up to close.
func (w *writer) file(e Entry) {
	w.entry(e)
	w.open = true
}

func (w *writer) close() {
	w.number(0)
	w.open = false
}

// end ends the stream, with an error if there is one.
func (w *writer) end(err error) {
	if err == nil {
		_ = w.w.WriteByte(endRecord)
		return
	}
	kind, text := byte(errorRecord), err.Error()
	if full, ok := errors.AsType[*FullError](err); ok {
		kind, text = fullRecord, full.What
	}
	if w.open {
		w.number(cutChunk)
	} else {
		_ = w.w.WriteByte(kind)
	}
	w.text(text[:min(len(text), maxReport)])
}

func (w *writer) flush() error { return w.w.Flush() }

// reader decodes untrusted data: it bounds a length before it allocates.
type reader struct{ r *bufio.Reader }

func newReader(r io.Reader) *reader { return &reader{bufio.NewReaderSize(r, chunk)} }

// errStream means that the data are not a valid stream.
var errStream = errors.New("mirror: the stream is broken")

func cut(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %w", errStream, err)
}

func (r *reader) number() (uint64, error) {
	n, err := binary.ReadUvarint(r.r)
	if err != nil {
		return 0, cut(err)
	}
	return n, nil
}

func (r *reader) text(most uint64) (string, error) {
	n, err := r.number()
	if err != nil {
		return "", err
	}
	if n > most {
		return "", fmt.Errorf("%w: a text of %d bytes where %d are the most", errStream, n, most)
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(r.r, p); err != nil {
		return "", cut(err)
	}
	return string(p), nil
}

// next reads an entry, or a name as the Path of an entry without a kind. At the end it
// returns io.EOF or the error in the stream.
func (r *reader) next() (e Entry, err error) {
	kind, err := r.r.ReadByte()
	if err != nil {
		return e, cut(err)
	}
	switch kind {
	case endRecord:
		return e, io.EOF
	case nameRecord:
		e.Path, err = r.text(maxPath)
		return e, err
	case fullRecord, errorRecord:
		text, err := r.text(maxReport)
		switch {
		case err != nil:
			return e, err
		case kind == fullRecord:
			return e, &FullError{text}
		}
		return e, fmt.Errorf("the other side: %s", text)
	case byte(File), byte(Dir), byte(Link), byte(Special):
	default:
		return e, fmt.Errorf("%w: a record of kind %q", errStream, kind)
	}
	e.Kind = Kind(kind)
	flags, err := r.r.ReadByte()
	if err != nil {
		return e, cut(err)
	}
	e.Exec, e.Settled = flags&execFlag != 0, flags&settledFlag != 0
	if e.Path, err = r.text(maxPath); err != nil {
		return e, err
	}
	size, err := r.number()
	if err != nil {
		return e, err
	}
	if e.Size = int64(size); e.Size < 0 { //nolint:gosec // checked
		return e, fmt.Errorf("%w: a size of %d", errStream, e.Size)
	}
	if e.Target, err = r.text(maxPath); err != nil {
		return e, err
	}
	if e.Stamp, err = r.text(maxStamp); err != nil {
		return e, err
	}
	if flags&sumFlag != 0 {
		if _, err := io.ReadFull(r.r, e.Sum[:]); err != nil {
			return e, cut(err)
		}
	}
	return e, nil
}

// entries reads to the end of a stream. More entries than most, or a larger listing than
// allowed, are a *FullError.
func (r *reader) entries(most int) (list []Entry, err error) {
	var names listing
	for {
		e, err := r.next()
		if err == io.EOF {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		if len(list) == most {
			return nil, &FullError{fmt.Sprintf("more than %d entries", most)}
		}
		if err := cmp.Or(names.add(e.Path), names.add(e.Target)); err != nil {
			return nil, err
		}
		list = append(list, e)
	}
}

// names reads to the end of a stream of names.
func (r *reader) names(most int) ([]string, error) {
	list, err := r.entries(most)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(list))
	for i, e := range list {
		if e.Kind != 0 {
			return nil, fmt.Errorf("%w: an entry among names", errStream)
		}
		if err := checkPath(e.Path); err != nil {
			return nil, err
		}
		names[i] = e.Path
	}
	return names, nil
}

// content reads the chunks of a file: bytes go to data, and the sizes of holes to hole.
func (r *reader) content(data func([]byte) error, hole func(int64) error) error {
	buf := make([]byte, chunk)
	for {
		n, err := r.number()
		if err != nil || n == 0 {
			return err
		}
		isHole, size := n&1 == 1, n>>1
		switch {
		case n == cutChunk:
			text, err := r.text(maxReport)
			return errors.Join(fmt.Errorf("the other side: %s", text), err)
		case isHole && size <= maxHole:
			err = hole(int64(size))
		case !isHole && size <= chunk:
			if _, err := io.ReadFull(r.r, buf[:size]); err != nil {
				return cut(err)
			}
			err = data(buf[:size])
		default:
			err = fmt.Errorf("%w: a chunk of %d bytes", errStream, size)
		}
		if err != nil {
			return err
		}
	}
}
