package loopback

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Up enables the loopback of a new network namespace. It fails in a namespace with any
// other interface, because commands would reach more there.
func Up() error {
	all, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("inspect the network: %w", err)
	}
	for _, i := range all {
		// Kernels create tunnel ends in each namespace; they are down and lead nowhere.
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			return fmt.Errorf("the network has the interface %s", i.Name)
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, r); err != nil {
		return fmt.Errorf("inspect the loopback: %w", err)
	}
	r.SetUint16(r.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r); err != nil {
		return fmt.Errorf("switch on the loopback: %w", err)
	}
	return nil
}
