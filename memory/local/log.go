package local

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"os"
	"path/filepath"

	"github.com/rathcluster/rath/internal/notebook"
	"github.com/rathcluster/rath/memory"
)

// A log is a sequence of frames: the mark, the length of the payload and the
// CRC-32C of length and payload, both 32 bits little endian, the payload. The
// first payload is a header, the others are changes, all of them JSON.
//
// The mark begins with a byte that UTF-8 text never contains. A damaged frame
// with a good one somewhere behind it is therefore told from an unfinished
// last one: a write is not acknowledged before its frame is whole on the
// medium, and no frame is written before the last one was.
const (
	mark       = "\xf5RM1"
	frameHead  = len(mark) + 4 + 4
	maxPayload = 1 << 30
)

type header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
}

var current = header{Format: "rath-memory", Version: 1}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// log is an open log file. It is not safe for concurrent use.
type log struct {
	path string
	file *os.File
	size int64
}

// frame encodes one payload.
func frame(payload any) ([]byte, error) {
	var buf bytes.Buffer
	buf.WriteString(mark)
	buf.Write(make([]byte, frameHead-len(mark)))
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(payload); err != nil {
		return nil, err
	}
	f := buf.Bytes()
	body := f[frameHead:]
	if len(body) > maxPayload {
		return nil, fmt.Errorf("%w: record of %d bytes", memory.ErrTooLarge, len(body))
	}
	binary.LittleEndian.PutUint32(f[len(mark):], uint32(len(body)))
	binary.LittleEndian.PutUint32(f[len(mark)+4:], sum(f[len(mark):len(mark)+4], body))
	return f, nil
}

func sum(length, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(length, castagnoli), castagnoli, body)
}

// unframe returns the payload of the frame that data begins with and what
// follows it; ok is false if there is no whole and undamaged frame.
func unframe(data []byte) (payload, rest []byte, ok bool) {
	if len(data) < frameHead || string(data[:len(mark)]) != mark {
		return nil, nil, false
	}
	length := data[len(mark) : len(mark)+4]
	n := int64(binary.LittleEndian.Uint32(length))
	if n > int64(len(data)-frameHead) {
		return nil, nil, false
	}
	payload, rest = data[frameHead:frameHead+int(n)], data[frameHead+int(n):]
	return payload, rest, sum(length, payload) == binary.LittleEndian.Uint32(data[len(mark)+4:])
}

// openLog reads the log at path, giving each change to apply in order, cuts an
// unfinished frame off its end and leaves it ready for append. A missing file
// is an empty log.
func openLog(path string, apply func(notebook.Change)) (_ *log, torn int64, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, 0, err
	}
	good, err := replay(path, data, apply)
	if err != nil {
		return nil, 0, err
	}
	l := &log{path: path, file: file, size: good}
	if torn = int64(len(data)) - good; torn > 0 {
		if err := file.Truncate(good); err != nil {
			return nil, 0, err
		}
	}
	if _, err := file.Seek(good, io.SeekStart); err != nil {
		return nil, 0, err
	}
	if good == 0 {
		if err := l.append(current); err != nil {
			return nil, 0, err
		}
	} else if err := file.Sync(); err != nil { // what was read is on the medium before it is relied on
		return nil, 0, err
	}
	return l, torn, syncDir(filepath.Dir(path))
}

// replay applies the frames of data and returns how many bytes are good.
func replay(path string, data []byte, apply func(notebook.Change)) (good int64, err error) {
	for rest := data; len(rest) > 0; {
		payload, next, ok := unframe(rest)
		at := int64(len(data) - len(rest))
		if !ok {
			return at, unfinished(path, rest, at)
		}
		if at == 0 {
			var h header
			if err := json.Unmarshal(payload, &h); err != nil || h.Format != current.Format {
				return 0, fmt.Errorf("%w: %s was not written by this package", ErrFormat, path)
			}
			if h.Version != current.Version {
				return 0, fmt.Errorf("%w: %s has version %d, this release reads %d: open it with a newer release",
					ErrFormat, path, h.Version, current.Version)
			}
		} else {
			var c notebook.Change
			if err := json.Unmarshal(payload, &c); err != nil {
				return at, fmt.Errorf("%w: %s, record at byte %d: %w", ErrCorrupt, path, at, err)
			}
			apply(c)
		}
		rest = next
	}
	return int64(len(data)), nil
}

// unfinished tells an unfinished last frame, which is no error, from damage.
func unfinished(path string, rest []byte, at int64) error {
	if at == 0 && !bytes.HasPrefix([]byte(mark), rest[:min(len(rest), len(mark))]) && len(bytes.Trim(rest, "\x00")) > 0 {
		return fmt.Errorf("%w: %s was not written by this package: move it away or name another directory", ErrFormat, path)
	}
	for tail := rest[1:]; ; tail = tail[1:] {
		i := bytes.Index(tail, []byte(mark))
		if i < 0 {
			return nil
		}
		tail = tail[i:]
		if _, _, ok := unframe(tail); ok {
			return fmt.Errorf("%w: %s is damaged at byte %d and goes on at byte %d: restore it from a copy, or cut out the bytes between to give up the notes in them",
				ErrCorrupt, path, at, at+int64(len(rest)-len(tail)))
		}
	}
}

// append writes one payload and waits until it is on the medium. After an
// error the end of the file is unknown and the log must not be used again.
func (l *log) append(payload any) error {
	f, err := frame(payload)
	if err != nil {
		return err
	}
	if _, err := l.file.Write(f); err != nil {
		return err
	}
	l.size += int64(len(f))
	return l.file.Sync()
}

// writeLog writes notes to a new log beside path and waits until it is on the
// medium. It returns the name of the file.
func writeLog(path string, notes iter.Seq[notebook.Note]) (name string, err error) {
	file, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	w := bufio.NewWriter(file)
	f, err := frame(current)
	if err != nil {
		return "", err
	}
	if _, err := w.Write(f); err != nil {
		return "", err
	}
	for n := range notes {
		f, err := frame(notebook.Change{Puts: []notebook.Note{n}})
		if err != nil {
			return "", err
		}
		if _, err := w.Write(f); err != nil {
			return "", err
		}
	}
	if err := w.Flush(); err != nil {
		return "", err
	}
	return file.Name(), file.Sync()
}

// replace puts the file next in the place of l and opens it. After an error
// l must not be used again.
func (l *log) replace(next string) (*log, error) {
	// Windows renames over no open file.
	if err := l.file.Close(); err != nil {
		return nil, err
	}
	if err := os.Rename(next, l.path); err != nil {
		return nil, err
	}
	if err := syncDir(filepath.Dir(l.path)); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(l.path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &log{path: l.path, file: file, size: size}, nil
}

// close does not fail on a file that a failed replace has closed.
func (l *log) close() error {
	if err := l.file.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
