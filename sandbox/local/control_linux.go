package local

import (
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/sandbox/confinement"
)

// give sends an order with files.
func give(c *net.UnixConn, o confinement.Order, files []*os.File) error {
	data, err := confinement.Frame(o)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	if err := c.SetWriteDeadline(time.Now().Add(stopGrace)); err != nil {
		return err
	}
	// The files go with the first byte.
	n, _, err := c.WriteMsgUnix(data, rights, nil)
	if err == nil && n < len(data) {
		_, err = c.Write(data[n:])
	}
	return err
}
