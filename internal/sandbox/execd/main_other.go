//go:build !linux

package execd

import (
	"errors"
	"net"
)

// main does nothing: containers are Linux.
func main([]string) {}

func install(string, string) error { return errors.ErrUnsupported }

// peerUser is not supported here.
func peerUser(net.Conn) (uid int, ok bool) { return 0, false }
