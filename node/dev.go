package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rathcluster/rath/cluster"
	"github.com/rathcluster/rath/internal/evidence/signature"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/supervise"
)

// devLabel keeps the nodes of `rath dev` apart from other fleets.
const devLabel = "rath-dev"

// errDevAgain ends a node whose `rath dev` was restarted: gossip then has another key.
var errDevAgain = errors.New(`node: "rath dev" was started again`)

// DevGossip returns the gossip of a node that others can join with Options.Dev: it
// listens for them on this machine, and its attachment has the key.
func DevGossip() *Gossip {
	return &Gossip{Bind: loopback, Key: cluster.NewKey().Text(), Label: devLabel}
}

const loopback = "127.0.0.1:0"

// joinDev takes the options of a node from the attachment of `rath dev`. A user who may
// read that file may join: `rath dev` generated the passwords and the key, and the
// level is the one that it has verified of its own server.
func (n *Instance) joinDev() error {
	dir, err := filepath.Abs(n.o.Dev)
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	n.o.Dev = dir
	a, err := supervise.ReadAttachment(dir)
	if err != nil {
		return fmt.Errorf("%w; start `rath dev` there, or name the directory of its store", err)
	}
	if _, err := cluster.ParseKey(a.GossipKey); err != nil || a.Gossip == "" {
		return fmt.Errorf("node: the process over %s accepts no other nodes; start `rath dev` there", dir)
	}
	n.o.NATS.URL, n.o.NATS.Level, n.o.NATS.Disk, n.o.NATS.Monitor, n.o.NATS.CredsFile, n.o.NATS.RootCAs = a.URL, a.Level, storeDir(dir), nil, "", ""
	n.o.Fleet.Gossip = &Gossip{Bind: loopback, Join: []string{a.Gossip}, Key: a.GossipKey, Label: devLabel}
	n.o.SigningKey = cmp.Or(n.o.SigningKey, filepath.Join(dir, signature.StoreFile))
	n.dev = &a
	program := programName(os.Args[0])
	if n.o.Fleet.Pool == "" && n.o.Fleet.Routing != RouteOnly && len(n.o.Workflows) > 0 {
		n.o.Fleet.Pool = program
	}
	if n.o.Store != "" {
		return nil
	}
	return n.holdDev(dir, cmp.Or(n.o.Name, program))
}

// holdDev locks a directory below that of `rath dev` for this node, and its name.
func (n *Instance) holdDev(dir, name string) error {
	for i := 1; ; i++ {
		own := name
		if i > 1 {
			own = fmt.Sprintf("%s-%d", name, i)
		}
		place := filepath.Join(dir, "nodes", own)
		if err := os.MkdirAll(place, 0o700); err != nil {
			return fmt.Errorf("node: store directory: %w", err)
		}
		release, err := natsserver.Hold(place)
		if errors.Is(err, natsserver.ErrStoreInUse) && i < maxDevNodes {
			continue
		}
		if err != nil {
			return fmt.Errorf("node: %w", err)
		}
		n.release, n.o.Store, n.o.Name = release, place, cmp.Or(n.o.Name, own)
		return nil
	}
}

// maxDevNodes bounds how many nodes of one program join the same `rath dev` by
// themselves.
const maxDevNodes = 64

// devLogin returns the credentials for each connect: a restarted `rath dev` has
// generated other passwords, and another key for gossip.
func (n *Instance) devLogin() (user, password string) {
	now, err := supervise.ReadAttachment(n.o.Dev)
	if err != nil {
		return n.dev.User, n.dev.Password
	}
	if now.GossipKey != n.dev.GossipKey {
		select {
		case n.failed <- errDevAgain:
		default:
		}
	}
	return now.User, now.Password
}

// devProbe reports the durability of `rath dev`, which verified it and wrote it next to
// the password that its server accepted.
func (n *Instance) devProbe(context.Context) ([]streams.SyncState, error) {
	a, err := supervise.ReadAttachment(n.o.Dev)
	if err != nil {
		return nil, err
	}
	return []streams.SyncState{{Server: "rath dev over " + n.o.Dev, Always: a.Level == string(streams.Fsync)}}, nil
}

// addsOnly reports whether the node offers its author's workflows alone, because the
// nodes of `rath dev` offer the built-in ones.
func (n *Instance) addsOnly() bool {
	return n.o.Dev != "" && n.o.Fleet.Pool != dispatch.DefaultPool && n.o.Fleet.Routing != RouteOnly && len(n.o.Workflows) > 0
}

// programName turns the path of a program into a valid name of nodes and pools.
func programName(path string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '-'
	}, strings.TrimSuffix(filepath.Base(path), ".exe"))
	if name = strings.Trim(name[:min(len(name), 40)], "-_"); name == "" {
		return "node"
	}
	return name
}
