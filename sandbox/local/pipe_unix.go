//go:build unix

package local

import (
	"errors"
	"os"
	"syscall"
)

// unread takes the data in a pipe, without waiting for more.
func unread(r *os.File, buf []byte, take func([]byte)) {
	const pipeMost = 1 << 20 // the capacity of a pipe, unless its user is root
	c, err := r.SyscallConn()
	if err != nil {
		return
	}
	for sum := 0; sum < pipeMost; {
		n := 0
		// Not Read, which checks the deadline before the pipe.
		if c.Control(func(fd uintptr) { n, err = syscall.Read(int(fd), buf) }) != nil {
			return
		}
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if n <= 0 {
			return
		}
		take(buf[:n])
		sum += n
	}
}
