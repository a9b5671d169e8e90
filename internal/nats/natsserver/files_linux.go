package natsserver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// syncsAtOnce bounds the files that are synced concurrently.
	syncsAtOnce = 8
	// goneFor bounds how long the kernel may take to report the removal of a file.
	goneFor = time.Second
	// watched are the events that the kernel reports of a directory: before the system call
	// that caused them returns, and so before the server acknowledges.
	watched = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR
)

// files syncs the files that a server has written. Only suspect may be called concurrently
// with other methods.
//
// A server rewrites a file, such as a compacted block or a consumer's state, by writing
// another file and renaming it over the old one. Without a sync in between a power cut may
// leave neither: ext4 begins to write the new one at the rename, and does not wait (shown
// by cutting the power). So directories are marked synchronous, as with chattr +S, and
// files made in them inherit the mark; the mark is removed from the blocks to which
// messages are appended.
type files struct {
	root  string
	marks bool                    // the file system supports them
	flush func(path string) error // of a test
	fd    int                     // of inotify
	dirs  map[int32]watchedDir
	next  changes // not synced yet
	all   atomic.Bool
	buf   [64 << 10]byte
}

type watchedDir struct {
	path string
	place
}

// changes are the paths to be synced.
type changes struct {
	files, dirs map[string]bool
	gone        map[string]bool // removed paths
}

func newChanges() changes {
	return changes{map[string]bool{}, map[string]bool{}, map[string]bool{}}
}

// openFiles begins with nothing synced: data written by a process that was killed before
// its round can be read, and is not on disk.
func openFiles(dir string, flush func(path string) error) (*files, error) {
	f := &files{root: filepath.Join(dir, filesDir), marks: flush == nil && !isMemory(dir), flush: flush, fd: -1}
	if err := os.MkdirAll(f.root, 0o750); err != nil {
		return nil, err
	}
	f.all.Store(true)
	err := f.begin()
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// suspect makes the next sync treat no file as synced.
func (f *files) suspect() { f.all.Store(true) }

func (f *files) close() error {
	if f.fd < 0 {
		return nil
	}
	fd := f.fd
	f.fd = -1
	return unix.Close(fd)
}

// begin watches all directories, and notes all that they hold.
func (f *files) begin() error {
	if err := f.close(); err != nil {
		return err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch the store (inotify): %w", err)
	}
	f.fd, f.dirs, f.next = fd, map[int32]watchedDir{}, newChanges()
	f.next.dirs[filepath.Dir(f.root)] = true
	return f.scan(f.root, 0)
}

// scan marks and watches a directory and its subdirectories, and records their contents.
func (f *files) scan(dir string, p place) error {
	if err := f.mark(dir, true); err != nil {
		return err
	}
	if p < placeConsumer { // of consumers their configuration, and not their positions
		wd, err := unix.InotifyAddWatch(f.fd, dir, watched)
		if errors.Is(err, unix.ENOENT) {
			return nil // its directory reports the removal
		}
		if err != nil {
			return fmt.Errorf("watch directory %s (inotify): %w", dir, err)
		}
		f.dirs[int32(wd)] = watchedDir{dir, p}
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f.next.dirs[dir] = true
	lossy := false
	if p == placeStream {
		if lossy, err = mayBeLost(dir); err != nil {
			return err
		}
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir() && lossy:
			err = f.leave(path)
		case e.IsDir():
			err = f.scan(path, p.within(path))
		case !passing(e.Name()):
			f.next.files[path] = true
			err = f.appended(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// leave stops watching a directory whose messages may be lost, and removes its marks.
func (f *files) leave(dir string) error {
	if f.marks {
		if err := unmark(dir); err != nil {
			return err
		}
	}
	for wd, d := range f.dirs {
		if d.path == dir {
			delete(f.dirs, wd)
			if _, err := unix.InotifyRmWatch(f.fd, uint32(wd)); err != nil && !errors.Is(err, unix.EINVAL) {
				return err
			}
		}
	}
	return nil
}

// read records the events that the kernel has reported since the last call.
func (f *files) read() error {
	for {
		n, err := unix.Read(f.fd, f.buf[:])
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("read the changes of the store (inotify): %w", err)
		}
		for b := f.buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			wd, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
			name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:end], []byte{0})
			if err := f.note(wd, mask, string(name)); err != nil {
				return err
			}
			b = b[end:]
		}
		if n < len(f.buf)-unix.SizeofInotifyEvent-unix.PathMax {
			return nil // there was room for more
		}
	}
}

// note records one change.
func (f *files) note(wd int32, mask uint32, name string) error {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		f.suspect()
		return nil
	}
	dir, ok := f.dirs[wd]
	if mask&unix.IN_IGNORED != 0 {
		delete(f.dirs, wd)
		return nil
	}
	if !ok || name == "" {
		return nil
	}
	path := filepath.Join(dir.path, name)
	if mask&unix.IN_ISDIR != 0 {
		f.next.dirs[dir.path] = true
		switch {
		case mask&(unix.IN_MOVED_FROM|unix.IN_MOVED_TO) != 0:
			f.suspect() // a watched path has another name now
		case mask&unix.IN_CREATE != 0:
			delete(f.next.gone, path)
			return f.scan(path, dir.within(path))
		case mask&unix.IN_DELETE != 0:
			f.next.remove(path)
		}
		return nil
	}
	switch {
	case passing(name):
		return nil
	case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		f.next.remove(path)
		f.next.dirs[dir.path] = true
		return nil
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		f.next.dirs[dir.path] = true
		if err := f.appended(path); err != nil {
			return err
		}
	}
	delete(f.next.gone, path)
	f.next.files[path] = true
	if dir.place == placeStream && name == "meta.inf" && mask&unix.IN_MOVED_TO != 0 {
		return f.scan(dir.path, dir.place) // now it names the stream's kind
	}
	return nil
}

// appended removes the mark from a block.
func (f *files) appended(path string) error {
	if filepath.Ext(path) != ".blk" {
		return nil
	}
	return f.mark(path, false)
}

func (f *files) mark(path string, on bool) error {
	if !f.marks {
		return nil
	}
	return mark(path, on)
}

// remove notes that a file or a directory is no more.
func (c *changes) remove(path string) {
	c.gone[path] = true
	for _, all := range []map[string]bool{c.files, c.dirs} {
		delete(all, path)
		for p := range all {
			if strings.HasPrefix(p, path+"/") {
				delete(all, p)
			}
		}
	}
}

// sync writes all changes made before the call to disk: the files, and then the
// directories, so that no name exists without its content.
func (f *files) sync() error {
	if err := f.read(); err != nil {
		return err
	}
	if f.all.Swap(false) {
		if err := f.begin(); err != nil {
			return err
		}
	}
	c := f.next
	if len(c.files)+len(c.dirs) == 0 {
		return nil
	}
	f.next = newChanges()
	for i, paths := range []map[string]bool{c.files, c.dirs} {
		flush := func(path string) error { return syncPath(path, i == 0) }
		if f.flush != nil {
			flush = f.flush
		}
		missing, err := flushAll(paths, flush)
		if err != nil {
			return err
		}
		if err := f.removed(missing); err != nil {
			return err
		}
	}
	return nil
}

// flushAll flushes each path, and returns the missing ones.
func flushAll(paths map[string]bool, flush func(path string) error) (missing []string, err error) {
	if len(paths) == 1 {
		for path := range paths {
			err = flush(path)
			if errors.Is(err, fs.ErrNotExist) {
				return []string{path}, nil
			}
		}
		return nil, err
	}
	var (
		mu   sync.Mutex
		work sync.WaitGroup
		room = make(chan struct{}, syncsAtOnce)
	)
	for path := range paths {
		room <- struct{}{}
		work.Go(func() {
			defer func() { <-room }()
			failed := flush(path)
			if failed == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(failed, fs.ErrNotExist) {
				missing = append(missing, path)
			} else {
				err = errors.Join(err, failed)
			}
		})
	}
	work.Wait()
	return missing, err
}

// removed returns nil if the server has removed all of these paths meanwhile, which the
// kernel reports with a short delay.
func (f *files) removed(paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	for until := time.Now().Add(goneFor); ; time.Sleep(time.Millisecond) {
		if err := f.read(); err != nil {
			return err
		}
		left := ""
		for _, path := range paths {
			if !f.next.isGone(path) {
				left = path
			}
		}
		switch {
		case left == "" || f.all.Load():
			return nil
		case time.Now().After(until):
			return fmt.Errorf("%s is missing, and the server has not removed it", left)
		}
	}
}

// isGone reports whether a path, or one of its parent directories, was removed.
func (c *changes) isGone(path string) bool {
	for ; len(path) > 1; path = filepath.Dir(path) {
		if c.gone[path] {
			return true
		}
	}
	return false
}

// syncPath syncs the content of a file (data), or the names in a directory.
func syncPath(path string, data bool) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	sync := unix.Fsync
	if data {
		sync = unix.Fdatasync
	}
	for err = sync(fd); errors.Is(err, unix.EINTR); {
		err = sync(fd)
	}
	if err != nil {
		err = &fs.PathError{Op: "sync", Path: path, Err: err}
	}
	return errors.Join(err, unix.Close(fd))
}
