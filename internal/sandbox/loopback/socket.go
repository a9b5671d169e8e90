package loopback

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
)

// name is the name of the socket in its folder.
const name = "proxy"

// Socket brings connections out of a network namespace.
type Socket struct {
	listener *net.UnixListener
	done     sync.WaitGroup
}

// Listen creates the socket of a proxy in a folder; it is removed with the folder. The
// caller closes it.
func Listen(folder string, serve func(net.Conn)) (*Socket, error) {
	dir, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	// The name of a socket must be short; the folder's may be long.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	s := &Socket{listener: l}
	s.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
		}
	})
	return s, nil
}

// Close stops accepting connections.
func (s *Socket) Close() error {
	err := s.listener.Close()
	s.done.Wait()
	return err
}

// Carry passes the connections to [Address] to the socket in a folder, until this process
// ends.
func Carry(folder string) error {
	l, err := net.Listen("tcp", Address)
	if err != nil {
		return err
	}
	dir, err := os.Open(folder)
	if err != nil {
		l.Close()
		return err
	}
	to := filepath.Join(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), name)
	go func() {
		defer dir.Close() // it stays open until here
		Forward(l, func() (net.Conn, error) { return net.Dial("unix", to) })
	}()
	return nil
}
