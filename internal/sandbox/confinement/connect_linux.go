package confinement

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// connectPatience is how long the peer may take.
const connectPatience = time.Second

// connect connects to a port of the loopback, for a command with a Port. Package net would
// take longer to initialize than this takes.
func connect(port int) Result {
	port &= math.MaxUint16
	var first error
	for _, to := range []unix.Sockaddr{
		&unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}},
		&unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}},
	} {
		err := dial(to)
		if err == nil {
			return Result{}
		}
		first = cmp.Or(first, err)
	}
	return Result{Code: 1, Note: fmt.Sprintf("connect to port %d: %v", port, first)}
}

// dial connects, and closes the connection.
func dial(to unix.Sockaddr) error {
	family := unix.AF_INET
	if _, six := to.(*unix.SockaddrInet6); six {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, to); err != unix.EINPROGRESS {
		return err
	}
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for deadline := time.Now().Add(connectPatience); ; {
		n, err := unix.Poll(fds, int(max(0, time.Until(deadline).Milliseconds())))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return unix.ETIMEDOUT
		}
		code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		return err
	}
}
