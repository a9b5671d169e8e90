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

// joinedDev is the `rath dev` that a node has joined.
type joinedDev struct {
	store  string
	joined supervise.Attachment
	end    func(error) // ends the node
}

// joinDev takes the options of a node from the attachment of `rath dev`. A user who may
// read that file may join: `rath dev` generated the passwords and the key, and the
// level is the one that it has verified of its own server. end ends the node. release
// gives up the node's own directory, nil if it is not below that store.
func joinDev(o *Options, end func(error)) (dev *joinedDev, release func() error, err error) {
	store, err := filepath.Abs(o.Dev)
	if err != nil {
		return nil, nil, fmt.Errorf("node: %w", err)
	}
	o.Dev = store
	a, err := supervise.ReadAttachment(store)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; start `rath dev` there, or name the directory of its store", err)
	}
	if _, err := cluster.ParseKey(a.GossipKey); err != nil || a.Gossip == "" {
		return nil, nil, fmt.Errorf("node: the process over %s accepts no other nodes; start `rath dev` there", store)
	}
	o.NATS.URL, o.NATS.Level, o.NATS.Disk, o.NATS.Monitor, o.NATS.CredsFile, o.NATS.RootCAs = a.URL, a.Level, storeDir(store), nil, "", ""
	o.Fleet.Gossip = &Gossip{Bind: loopback, Join: []string{a.Gossip}, Key: a.GossipKey, Label: devLabel}
	o.SigningKey = cmp.Or(o.SigningKey, filepath.Join(store, signature.StoreFile))
	program := programName(os.Args[0])
	if o.Fleet.Pool == "" && o.Fleet.Routing != RouteOnly && len(o.Workflows) > 0 {
		o.Fleet.Pool = program
	}
	if o.Store == "" {
		release, err = holdDev(o, cmp.Or(o.Name, program))
	}
	return &joinedDev{store, a, end}, release, err
}

// holdDev locks a directory below that of `rath dev` for this node, and its name.
func holdDev(o *Options, name string) (release func() error, err error) {
	for i := 1; ; i++ {
		own := name
		if i > 1 {
			own = fmt.Sprintf("%s-%d", name, i)
		}
		place := filepath.Join(o.Dev, "nodes", own)
		if err := os.MkdirAll(place, 0o700); err != nil {
			return nil, fmt.Errorf("node: store directory: %w", err)
		}
		release, err := natsserver.Hold(place)
		if errors.Is(err, natsserver.ErrStoreInUse) && i < maxDevNodes {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("node: %w", err)
		}
		o.Store, o.Name = place, cmp.Or(o.Name, own)
		return release, nil
	}
}

// maxDevNodes bounds how many nodes of one program join the same `rath dev` by
// themselves.
const maxDevNodes = 64

// login returns the credentials for each connect: a restarted `rath dev` has
// generated other passwords, and another key for gossip.
func (d *joinedDev) login() (user, password string) {
	now, err := supervise.ReadAttachment(d.store)
	if err != nil {
		return d.joined.User, d.joined.Password
	}
	if now.GossipKey != d.joined.GossipKey {
		d.end(errDevAgain)
	}
	return now.User, now.Password
}

// probe reports the durability of `rath dev`, which verified it and wrote it next to
// the password that its server accepted.
func (d *joinedDev) probe(context.Context) ([]streams.SyncState, error) {
	a, err := supervise.ReadAttachment(d.store)
	if err != nil {
		return nil, err
	}
	return []streams.SyncState{{Server: "rath dev over " + d.store, Always: a.Level == string(streams.Fsync)}}, nil
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
