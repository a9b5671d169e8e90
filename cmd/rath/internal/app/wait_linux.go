package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// waitingFile reads a file, such as a terminal or a pipe, until a context ends.
type waitingFile struct {
	ctx  context.Context
	file *os.File
	wake *os.File // reaches its end when ctx ends
}

// Until returns a reader whose reads end with a context, and true, if in is a file.
// Otherwise, or without a free descriptor, it returns in itself, and false. Call
// release after the last read.
func Until(ctx context.Context, in io.Reader) (_ io.Reader, release func(), ends bool) {
	file, ok := in.(*os.File)
	if !ok {
		return in, func() {}, false
	}
	wake, end, err := os.Pipe()
	if err != nil {
		return in, func() {}, false
	}
	stop := context.AfterFunc(ctx, func() { end.Close() })
	return &waitingFile{ctx, file, wake}, func() {
		if stop() {
			end.Close()
		}
		wake.Close()
	}, true
}

// Read implements io.Reader.
func (w *waitingFile) Read(p []byte) (int, error) {
	c, err := w.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	wake, waited := int32(w.wake.Fd()), error(nil)
	err = c.Control(func(fd uintptr) {
		for {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: wake, Events: unix.POLLIN}}
			if _, waited = unix.Poll(fds, -1); !errors.Is(waited, unix.EINTR) {
				return
			}
		}
	})
	if err := errors.Join(err, waited); err != nil {
		return 0, fmt.Errorf("wait for input: %w", err)
	}
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.file.Read(p)
}
