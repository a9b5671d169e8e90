package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// VerbStanding is the verb of messages.StoreSubject by which a node that is bound to a
// tenant reports its state. It has no answer.
const VerbStanding = "standing"

// nodeStanding is the state of a node, for all relays, or with a Grant the slot that it
// reserves for the relay of a partition. A node bound to a tenant sends it to a shared
// node, which forwards it.
type nodeStanding struct {
	wireGrant
	Generation uint32 `json:"generation,omitempty"`
	Partition  uint32 `json:"partition,omitempty"`
}

// tellStanding publishes the state of a node to the relays.
func (c *Dispatch) tellStanding(s nodeStanding) {
	switch t, bound := messages.BoundTo(s.Incarnation); {
	case bound:
		c.tell(messages.StoreSubject(t, VerbStanding), s)
	case s.Grant != 0:
		c.tell(grantSubject(s.Generation, s.Partition), s.wireGrant)
	default:
		c.tell(subjectSlots, s.NodeState)
	}
}

// helloSubject is the subject on which a node is asked for its state: a node bound to a
// tenant receives only messages addressed to it.
func helloSubject(incarnation string) string {
	if _, bound := messages.BoundTo(incarnation); bound {
		return messages.NodeSubject(incarnation, "hello")
	}
	return subjectHello
}

// callBound asks the nodes bound to tenants for their state.
func (c *Dispatch) callBound(ctx context.Context) error {
	for n, err := range c.Registry.boundNodes(ctx) {
		if err == nil {
			err = c.conn.NC.Publish(helloSubject(n.Incarnation), nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// boundNodes yields the nodes that live and are bound to tenants.
func (r *Registry) boundNodes(ctx context.Context) iter.Seq2[messages.Node, error] {
	return func(yield func(messages.Node, error) bool) {
		for m, err := range r.streams.Values(ctx, streams.BucketNode, ">") {
			var n messages.Node
			if err == nil && json.Unmarshal(m.Data, &n) != nil {
				continue
			}
			if _, bound := messages.BoundTo(n.Incarnation); (bound || err != nil) && !yield(n, err) {
				return
			}
		}
	}
}

// PassStanding forwards the state that a node bound to a tenant reported to the relays. It
// returns session.ErrTenant for a name that does not belong to this tenant.
func (c *Dispatch) PassStanding(t session.Tenant, said []byte) error {
	var s nodeStanding
	if err := json.Unmarshal(said, &s); err != nil {
		return fmt.Errorf("how a node stands: %w: %w", run.ErrMalformed, err)
	}
	if of, bound := messages.BoundTo(s.Incarnation); !bound || of != t {
		return fmt.Errorf("node %q does not belong to tenant %s: %w", s.Incarnation, t, session.ErrTenant)
	}
	if err := validPool(s.Pool); err != nil {
		return fmt.Errorf("%w: %w", run.ErrMalformed, err)
	}
	if s.Free < 0 || s.Free > maxFree {
		return fmt.Errorf("%d free slots: %w: want 0 to %d", s.Free, run.ErrMalformed, maxFree)
	}
	if s.Grant == 0 {
		c.tell(subjectSlots, s.NodeState)
		return nil
	}
	s.Head.Tenant = t
	c.tell(grantSubject(s.Generation, s.Partition), s.wireGrant)
	return nil
}

// maxFree bounds the free slots that a bound node may report.
const maxFree = 1 << 16
