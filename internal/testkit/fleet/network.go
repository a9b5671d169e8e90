//go:build linux

package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// network is a bridge in a namespace of its own, with this process and each
// host on it.
type network struct {
	t    *thread
	hub  *os.File
	name string // of this process's end
	net  string // the first three numbers of its addresses, from 198.18.0.0/15, which is set aside for tests
	self *host

	mu    sync.Mutex
	hosts int
	cuts  map[[2]*host]int
	lossy map[*host]bool
}

// host is one end of the network: a namespace, or this process.
type host struct {
	ns  *os.File // nil is this process
	ip  string
	dev string
}

// nowhere is the hardware address of no host: packets to it are lost without an error.
const nowhere = "02:00:00:00:00:fe"

func newNetwork(t *thread) (_ *network, err error) {
	n := &network{t: t, cuts: map[[2]*host]int{}, lossy: map[*host]bool{}}
	if n.hub, err = t.namespace(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.hub.Close())
		}
	}()
	if err = n.ip(n.hub, "link add br0 type bridge", "link set br0 up"); err != nil {
		return nil, err
	}
	// Another fleet on this machine has taken a number when its name exists.
	for i := range 512 {
		n.name = fmt.Sprintf("rath%d", i)
		err = n.ip(nil, fmt.Sprintf("link add %s type veth peer name up0 netns %s", n.name, path(n.hub)))
		if err == nil {
			n.net = fmt.Sprintf("198.%d.%d", 18+i/256, i%256)
			break
		}
		if !strings.Contains(err.Error(), "File exists") {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	n.self = &host{ip: n.net + ".1", dev: n.name}
	err = errors.Join(
		n.ip(nil, fmt.Sprintf("addr add %s/24 dev %s", n.self.ip, n.name), "link set "+n.name+" up"),
		n.ip(n.hub, "link set up0 master br0", "link set up0 up"),
	)
	return n, err
}

// host adds a host.
func (n *network) host() (*host, error) {
	ns, err := n.t.namespace()
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.hosts++
	h := &host{ns: ns, ip: fmt.Sprintf("%s.%d", n.net, 9+n.hosts), dev: "eth0"}
	link := fmt.Sprintf("h%d", n.hosts)
	n.mu.Unlock()
	err = n.ip(n.hub,
		fmt.Sprintf("link add %s type veth peer name eth0 netns %s", link, path(ns)),
		fmt.Sprintf("link set %s master br0", link),
		fmt.Sprintf("link set %s up", link),
	)
	if err == nil {
		err = n.ip(ns, "link set lo up", fmt.Sprintf("addr add %s/24 dev eth0", h.ip), "link set eth0 up")
	}
	return h, err
}

// cut drops the packets of from to to, and counts: each cut is healed once.
func (n *network) cut(from, to *host) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := [2]*host{from, to}
	if n.cuts[k]++; n.cuts[k] > 1 {
		return nil
	}
	return n.ip(from.ns, fmt.Sprintf("neigh replace %s lladdr %s dev %s nud permanent", to.ip, nowhere, from.dev))
}

func (n *network) heal(from, to *host) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := [2]*host{from, to}
	if n.cuts[k] == 0 {
		return nil
	}
	if n.cuts[k]--; n.cuts[k] > 0 {
		return nil
	}
	delete(n.cuts, k)
	return n.ip(from.ns, fmt.Sprintf("neigh del %s dev %s", to.ip, from.dev))
}

// lose has a host lose that part of the packets that reach it, each by chance;
// 0 ends that.
func (n *network) lose(at *host, part float64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if part == 0 && !n.lossy[at] {
		return nil
	}
	rules := "*filter\n"
	if part > 0 {
		rules += fmt.Sprintf("-A INPUT -i %s -m statistic --mode random --probability %.4f -j DROP\n", at.dev, part)
	}
	n.lossy[at] = part > 0
	return n.run(at.ns, "iptables", rules+"COMMIT\n", "iptables-restore")
}

func (n *network) healAll() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for k := range n.cuts {
		errs = append(errs, n.ip(k[0].ns, fmt.Sprintf("neigh del %s dev %s", k[1].ip, k[0].dev)))
	}
	clear(n.cuts)
	for at, lossy := range n.lossy {
		if lossy {
			errs = append(errs, n.run(at.ns, "iptables", "*filter\nCOMMIT\n", "iptables-restore"))
		}
	}
	clear(n.lossy)
	return errors.Join(errs...)
}

// ip runs commands of the program ip in a namespace.
func (n *network) ip(ns *os.File, commands ...string) error {
	return n.run(ns, "iproute2", strings.Join(commands, "\n")+"\n", "ip", "-batch", "-")
}

// run runs a program of a package in a namespace, with input on its standard input.
func (n *network) run(ns *os.File, pkg, input, name string, args ...string) error {
	return n.t.do(ns, func() error {
		cmd := exec.Command(name, args...)
		cmd.Stdin = strings.NewReader(input)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("fleet: %s %s: %w: %s (it needs root and the package %s)", name, strings.ReplaceAll(strings.TrimSpace(input), "\n", "; "), err, strings.TrimSpace(out.String()), pkg)
		}
		return nil
	})
}

// close removes this process's end; the kernel removes the rest with the last process.
func (n *network) close() error {
	return errors.Join(n.ip(nil, "link del "+n.name), n.hub.Close())
}
