//go:build linux

package fleet

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/rathcluster/rath/internal/sandbox/overlay"
)

const (
	gossipPort = 7946
	healthPort = 8080
	keyFile    = "gossip.key"
)

// Options configure a fleet. Dir is required.
type Options struct {
	// Dir holds the stores and logs of all processes: dir/<name>/.
	Dir string
	// Servers is the number of NATS servers: 1, or 3 as a cluster.
	Servers int
	// Disks are the disks of the NATS servers, in order.
	Disks []Disk
	// Lazy lets the NATS servers acknowledge before they sync, for tests that demonstrate the
	// loss.
	Lazy bool
}

// Fleet is a number of processes and the network between them. It is safe for concurrent
// use, except for AddNodes, AddRouters and AddProgram, which must run alone.
type Fleet struct {
	o                                            Options
	thread                                       *thread
	network                                      *network
	nodePassword, operatorPassword, toolPassword string
	gossipKey                                    string // in base64

	servers, nodes, routers, others []*Process

	closing sync.Once
	err     error
}

// Start starts the NATS servers of a fleet and returns when they are up; nodes
// and routers are added to it. ctx bounds the start.
func Start(ctx context.Context, opts *Options) (_ *Fleet, err error) {
	f := &Fleet{o: *opts, nodePassword: rand.Text(), operatorPassword: rand.Text(), toolPassword: rand.Text()}
	if f.o.Servers == 0 {
		f.o.Servers = 1
	}
	if f.o.Dir, err = filepath.Abs(f.o.Dir); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	if f.thread, err = newThread(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if f.network, err = newNetwork(f.thread); err != nil {
		return nil, err
	}
	// Nodes find each other by the key.
	key := make([]byte, 32)
	rand.Read(key) //nolint:errcheck // never fails, by its contract
	f.gossipKey = base64.StdEncoding.EncodeToString(key)
	if err = os.MkdirAll(f.o.Dir, 0o700); err == nil {
		err = os.WriteFile(f.dir(keyFile), []byte(f.gossipKey), 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	if err = f.startServers(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

// AddNodes adds n nodes and returns when they are up. The program is started
// with flags that say where NATS is and where its store, after its own Args,
// and with the password in its environment.
func (f *Fleet) AddNodes(ctx context.Context, n int, program Program) error {
	return f.grow(ctx, &f.nodes, "node", n, program)
}

// AddRouters adds n routers, which differ from nodes by their program only.
func (f *Fleet) AddRouters(ctx context.Context, n int, program Program) error {
	return f.grow(ctx, &f.routers, "router", n, program)
}

func (f *Fleet) grow(ctx context.Context, all *[]*Process, kind string, n int, program Program) error {
	var added []*Process
	for range n {
		p, err := f.addNode(kind, len(*all), program)
		if err != nil {
			return err
		}
		*all = append(*all, p)
		added = append(added, p)
	}
	for i, p := range added {
		if err := p.Start(); err != nil {
			return err
		}
		// The first one makes the streams; the others would wait for it.
		if i == 0 {
			if err := p.Up(ctx); err != nil {
				return err
			}
		}
	}
	for _, p := range added {
		if err := p.Up(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fleet) addNode(kind string, i int, program Program) (*Process, error) {
	name := fmt.Sprintf("%s-%d", kind, i)
	h, err := f.network.host()
	if err != nil {
		return nil, err
	}
	return f.add(name, h, "is up", func() Program {
		var peers []string
		for _, p := range append(slices.Clone(f.nodes), f.routers...) {
			peers = append(peers, fmt.Sprintf("%s:%d", p.IP(), gossipPort))
		}
		args := append(append([]string(nil), program.Args...),
			"-nats", f.URLs(i), "-user", "node", "-replicas", fmt.Sprint(f.o.Servers), "-store", f.dir(name, "store"),
			"-name", name, "-gossip", fmt.Sprintf("%s:%d", h.ip, gossipPort), "-join", strings.Join(peers, ","), "-gossip-key-file", f.dir(keyFile),
			"-health", fmt.Sprintf("%s:%d", h.ip, healthPort))
		for _, s := range f.servers {
			args = append(args, "-monitor", fmt.Sprintf("http://%s:%d", s.IP(), monitorPort))
		}
		return Program{Path: program.Path, Args: args, Env: append([]string{
			"NATS_PASSWORD=" + f.nodePassword, "HOME=" + f.dir(name), "RATH_FLEET_NAME=" + name,
		}, program.Env...)}
	})
}

// AddProgram adds a program from outside the system, such as one with a tool, and returns
// after it has written up to its output. It finds the servers in NATS_URL, and the login of
// tools in NATS_USER and NATS_PASSWORD.
func (f *Fleet) AddProgram(ctx context.Context, name, up string, program Program) error {
	h, err := f.network.host()
	if err != nil {
		return err
	}
	p, err := f.add(name, h, up, func() Program {
		user, password := f.ToolLogin()
		env := append([]string{"NATS_URL=" + f.URLs(0), "NATS_USER=" + user, "NATS_PASSWORD=" + password, "HOME=" + f.dir(name), "RATH_FLEET_NAME=" + name}, program.Env...)
		return Program{Path: program.Path, Args: program.Args, Env: env}
	})
	if err != nil {
		return err
	}
	f.others = append(f.others, p)
	if err := p.Start(); err != nil {
		return err
	}
	return p.Up(ctx)
}

func (f *Fleet) add(name string, h *host, up string, program func() Program) (*Process, error) {
	if err := os.MkdirAll(f.dir(name, "store"), 0o700); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	return &Process{Name: name, Log: f.dir(name, "log"), f: f, host: h, program: program, up: up}, nil
}

func (f *Fleet) dir(parts ...string) string {
	return filepath.Join(append([]string{f.o.Dir}, parts...)...)
}

// Servers are the NATS servers.
func (f *Fleet) Servers() []*Process { return f.servers }

// Nodes are the nodes.
func (f *Fleet) Nodes() []*Process { return f.nodes }

// Routers are the routers.
func (f *Fleet) Routers() []*Process { return f.routers }

// Others are the programs of AddProgram.
func (f *Fleet) Others() []*Process { return f.others }

// All are all processes: servers, nodes, routers, others.
func (f *Fleet) All() []*Process {
	return slices.Concat(f.servers, f.nodes, f.routers, f.others)
}

// URLs are the addresses of the NATS servers, separated by commas, the given
// one first.
func (f *Fleet) URLs(first int) string {
	var urls []string
	for i := range f.servers {
		urls = append(urls, fmt.Sprintf("nats://%s:%d", f.servers[(first+i)%len(f.servers)].IP(), clientPort))
	}
	return strings.Join(urls, ",")
}

// Self is the address of this process in the fleet's network: where a model
// server of a test listens.
func (f *Fleet) Self() string { return f.network.self.ip }

// NodeLogin and OperatorLogin are credentials for the NATS servers.
func (f *Fleet) NodeLogin() (user, password string) { return "node", f.nodePassword }

// OperatorLogin is the login that may delete and purge.
func (f *Fleet) OperatorLogin() (user, password string) { return "operator", f.operatorPassword }

// ToolLogin is the login that may announce tools and answer their calls.
func (f *Fleet) ToolLogin() (user, password string) { return "tool", f.toolPassword }

// Secrets returns the credentials of the fleet itself, by name: the passwords of the
// logins, and the key of gossip in the form of its file.
func (f *Fleet) Secrets() map[string]string {
	return map[string]string{
		"password of nodes": f.nodePassword, "password of operators": f.operatorPassword, "password of tools": f.toolPassword, "key of gossip": f.gossipKey,
	}
}

// Cut loses everything that from sends to to; nil stands for this process. The
// other direction works on. Each cut is healed once.
func (f *Fleet) Cut(from, to *Process) error { return f.network.cut(f.end(from), f.end(to)) }

// Heal ends a cut.
func (f *Fleet) Heal(from, to *Process) error { return f.network.heal(f.end(from), f.end(to)) }

// Lose has p lose that part, from 0 to 1, of the packets that reach it from
// others, each by chance. It is for the fleet's processes, not this one.
func (f *Fleet) Lose(p *Process, part float64) error { return f.network.lose(p.host, part) }

// HealAll ends all cuts and losses.
func (f *Fleet) HealAll() error { return f.network.healAll() }

func (f *Fleet) end(p *Process) *host {
	if p == nil {
		return f.network.self
	}
	return p.host
}

// Close kills all processes and waits for them.
func (f *Fleet) Close() error {
	f.closing.Do(func() {
		var errs []error
		for _, p := range f.All() {
			if err := p.Kill(); err != nil && !errors.Is(err, ErrNotRunning) {
				errs = append(errs, err)
			}
			// The mounts of a killed node would keep its directory. A store on a removed disk
			// cannot be read.
			_ = overlay.Clear(f.dir(p.Name, "store"))
		}
		if f.network != nil {
			errs = append(errs, f.network.close())
		}
		if f.thread != nil {
			f.thread.close()
		}
		f.err = errors.Join(errs...)
	})
	return f.err
}
