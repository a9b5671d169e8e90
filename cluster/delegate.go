package cluster

import (
	"sync/atomic"

	"github.com/hashicorp/memberlist"
)

// delegate is what the library calls, under its lock and on the path of its
// packets: it copies what it gets into the view and returns.
type delegate struct {
	cfg  *Config
	view *view
	meta atomic.Pointer[[]byte] // how this node describes itself
}

var (
	_ memberlist.Delegate      = (*delegate)(nil)
	_ memberlist.EventDelegate = (*delegate)(nil)
	_ memberlist.AliveDelegate = (*delegate)(nil)
	_ memberlist.MergeDelegate = (*delegate)(nil)
)

// NotifyAlive keeps nodes out of the list that this one does not understand, from any
// source.
func (d *delegate) NotifyAlive(peer *memberlist.Node) error {
	if peer.Name == d.cfg.Incarnation {
		return nil
	}
	n, oldest, err := decode(peer)
	if err != nil {
		return err
	}
	return d.cfg.fits(n, oldest)
}

// NotifyMerge is asked on both sides of a join. It fails if not one node of the
// other side is understood, so that the one that joins learns why it is refused;
// where some are, NotifyAlive picks them.
func (d *delegate) NotifyMerge(peers []*memberlist.Node) error {
	var refused error
	for _, peer := range peers {
		if peer.State != memberlist.StateAlive || peer.Name == d.cfg.Incarnation {
			continue
		}
		err := d.NotifyAlive(peer)
		if err == nil {
			return nil
		}
		refused = err
	}
	return refused
}

func (d *delegate) NotifyJoin(peer *memberlist.Node)   { d.seen(peer) }
func (d *delegate) NotifyUpdate(peer *memberlist.Node) { d.seen(peer) }

func (d *delegate) seen(peer *memberlist.Node) {
	if peer.Name == d.cfg.Incarnation {
		return
	}
	if n, _, err := decode(peer); err == nil { // NotifyAlive let it pass
		d.view.put(n)
	}
}

func (d *delegate) NotifyLeave(peer *memberlist.Node) { d.view.remove(peer.Name) }

func (d *delegate) NodeMeta(int) []byte { return *d.meta.Load() }

// Nodes exchange nothing but what they are.

func (*delegate) NotifyMsg([]byte)                {}
func (*delegate) GetBroadcasts(int, int) [][]byte { return nil }
func (*delegate) LocalState(bool) []byte          { return nil }
func (*delegate) MergeRemoteState([]byte, bool)   {}
