package natsserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/platform/filelock"
)

var (
	// ErrNoStoreDir is returned when Options name no store directory.
	ErrNoStoreDir = errors.New("natsserver: no store directory given; set StoreDir")
	// ErrStoreInUse matches every *InUseError.
	ErrStoreInUse = errors.New("natsserver: store directory in use")
	// ErrStoreReadOnly is returned for a directory this process may not write.
	ErrStoreReadOnly = errors.New("natsserver: store directory not writable")
	// ErrStoreFull is returned when the disk of the store directory is full.
	ErrStoreFull = errors.New("natsserver: disk of the store directory is full")
	// ErrPortInUse is returned when the port cannot be listened on.
	ErrPortInUse = errors.New("natsserver: port in use")
)

// InUseError names the process that holds a store directory. errors.Is(err, ErrStoreInUse)
// holds.
type InUseError struct {
	// Dir is the store directory.
	Dir string
	// PID is the process that holds it, 0 when it could not be read.
	PID int
}

// Error names the directory, the process and the remedy.
func (e *InUseError) Error() string {
	holder := "another process"
	if e.PID > 0 {
		holder = "process " + strconv.Itoa(e.PID)
	}
	return fmt.Sprintf("%v: %s is held by %s; stop that process or use another directory", ErrStoreInUse, e.Dir, holder)
}

// Is reports whether target is ErrStoreInUse.
func (e *InUseError) Is(target error) bool { return target == ErrStoreInUse }

// lockName is the file in the store directory whose lock, not whose existence, marks the
// directory as held: the lock ends with its process.
const lockName = "rath.lock"

// probeSize is enough for the first blocks of a few streams.
const probeSize = 256 << 10

// lingering bounds how long a directory may stay held when its process has ended:
// a child that it was starting when it was killed has its files open, and with them
// the lock, until it runs its own program.
const lingering = 2 * time.Second

// dirLock holds a store directory until it is released or the process ends.
type dirLock struct{ f *os.File }

func lockDir(dir string) (*dirLock, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, classify(dir, err)
	}
	held, err := filelock.Try(f)
	for end := time.Now().Add(lingering); err == nil && !held && ended(readPID(f)) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		held, err = filelock.Try(f)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("natsserver: lock store directory %s: %w", dir, err), f.Close())
	}
	if !held {
		pid := readPID(f)
		return nil, errors.Join(&InUseError{Dir: dir, PID: pid}, f.Close())
	}
	// The id is for people; a full disk is reported by the probe that follows.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &dirLock{f}, nil
}

// Hold locks a directory for this process until release is called, as Start locks a
// server's directory: for files that a node keeps beside one, or without one. An
// *InUseError names the holder.
func Hold(dir string) (release func() error, err error) {
	l, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	return l.release, nil
}

// release unlocks the directory. The file stays: removing it would let two processes hold
// locks on two files of the same name.
func (l *dirLock) release() error { return filelock.Release(l.f) }

func readPID(f *os.File) int {
	var buf [32]byte
	n, _ := f.ReadAt(buf[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		return 0
	}
	return pid
}

// probeWritable writes and syncs a file, because a directory may reject writes for more
// reasons than its mode shows. The server would start on such a directory and fail with the
// first message.
func probeWritable(dir string) error {
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return classify(dir, err)
	}
	_, err = f.Write(make([]byte, probeSize))
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close(), os.Remove(f.Name())); err != nil {
		return classify(dir, err)
	}
	return nil
}

// classify names the obstacle to using a directory, and the remedy.
func classify(dir string, err error) error {
	switch {
	case isFull(err):
		return fmt.Errorf("%w: %s: %w; free some space or use another directory", ErrStoreFull, dir, err)
	case errors.Is(err, fs.ErrPermission), isReadOnly(err):
		return fmt.Errorf("%w: %s: %w; make it writable for this user or use another directory", ErrStoreReadOnly, dir, err)
	}
	return fmt.Errorf("natsserver: use store directory %s: %w; choose a directory that can be created and written", dir, err)
}
