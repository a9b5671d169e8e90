package fleet

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// loopback is the address of a port that only this machine reaches.
func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// Nodes of a fleet listen on ports below those that Linux, macOS and Windows give to
// outgoing connections: one that was found free is not taken by a connection before
// its node is up, nor while a node that died is started again.
const firstPort, portCount = 10_000, 10_000

// freePorts finds so many TCP ports of this machine that no process listens on. It lets
// them go together, because one that is free again may be found again.
func freePorts(n int) ([]int, error) {
	var ports []int
	for tries := 1; len(ports) < n; tries++ {
		port := firstPort + rand.IntN(portCount)
		l, err := net.Listen("tcp", loopback(port))
		switch {
		case err == nil:
			defer l.Close()
			ports = append(ports, port)
		case tries > 1000: // all others that were tried are in use
			return nil, fmt.Errorf("find a free port: %w", err)
		}
	}
	return ports, nil
}
