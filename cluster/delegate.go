package cluster

import (
	"sync/atomic"

	"github.com/hashicorp/memberlist"
)

// delegate implements the library's callbacks, which run under its lock and on the path
// of its packets: they copy their arguments into the view and return.
type delegate struct {
	cfg  *Config
	view *view
	meta atomic.Pointer[[]byte] // the encoded description of this node
}

var (
	_ memberlist.Delegate      = (*delegate)(nil)
	_ memberlist.EventDelegate = (*delegate)(nil)
	_ memberlist.AliveDelegate = (*delegate)(nil)
	_ memberlist.MergeDelegate = (*delegate)(nil)
)

// NotifyAlive rejects nodes that this one does not understand, from any source.
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

// NotifyMerge is called on both sides of a join. It fails if this node understands no
// node of the other side, so that the joining node gets the reason; otherwise
// NotifyAlive selects the nodes.
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

// Nodes exchange only their metadata.

func (*delegate) NotifyMsg([]byte)                {}
func (*delegate) GetBroadcasts(int, int) [][]byte { return nil }
func (*delegate) LocalState(bool) []byte          { return nil }
func (*delegate) MergeRemoteState([]byte, bool)   {}
