package tool

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/sandbox"
)

// offloadMemory is the number of bytes of an output held in memory before it moves to a
// temporary file.
const offloadMemory = 256 << 10

// offload stores a whole output in case it has to be shortened. It never fails the command
// that writes: if it cannot store a part, it discards the output. It is safe for concurrent
// use.
type offload struct {
	mu   sync.Mutex
	mem  bytes.Buffer
	file *os.File
	size int64
	lost bool
}

// Write implements io.Writer; it takes everything and returns no error.
func (s *offload) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(p)
	if left := sandbox.MaxOffload - s.size; int64(len(p)) > left {
		p = p[:max(left, 0)]
	}
	if s.lost || len(p) == 0 {
		return n, nil
	}
	s.size += int64(len(p))
	if s.file == nil && s.mem.Len()+len(p) <= offloadMemory {
		s.mem.Write(p)
		return n, nil
	}
	s.lost = s.write(p) != nil
	return n, nil
}

func (s *offload) write(p []byte) (err error) {
	if s.file == nil {
		if s.file, err = os.CreateTemp("", "rath-output-*"); err != nil {
			return err
		}
		if _, err := s.mem.WriteTo(s.file); err != nil {
			return err
		}
	}
	_, err = s.file.Write(p)
	return err
}

// keep stores the output in the blob store, up to sandbox.MaxOffload bytes. It reports
// false if the output could not be stored.
func (s *offload) keep(ctx context.Context, blobs blob.Store) (blob.Ref, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		return blob.Ref{}, false
	}
	var r io.Reader = &s.mem
	if s.file != nil {
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			return blob.Ref{}, false
		}
		r = s.file
	}
	ref, err := blobs.Put(ctx, r)
	return ref, err == nil
}

// close removes the temporary file.
func (s *offload) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	return errors.Join(s.file.Close(), os.Remove(s.file.Name()))
}
