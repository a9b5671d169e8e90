package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

const (
	// openMost bounds the sessions with open runs that are named for a tenant.
	openMost = 1000
	// openTimeout bounds the requests. Without the answers lists are read in another way.
	openTimeout = time.Second
	// openAgain is the pause before a relay that has not caught up is asked again.
	openAgain = 20 * time.Millisecond
)

// openOf requests the sessions of a tenant with open runs from the relay of a partition.
type openOf struct {
	Tenant session.Tenant `json:"tenant"`
}

// openAnswer is as of the message At of the event stream.
type openAnswer struct {
	At       uint64       `json:"at"`
	Sessions []session.ID `json:"sessions,omitempty"`
	All      bool         `json:"all"`
}

func openSubject(generation, partition uint32) string {
	return fmt.Sprintf("%sopen.%d.%d", messages.NodePrefix, generation, partition)
}

// OpenSessions returns the sessions of a tenant with runs that have not ended, as of the
// call or later. ok is false if the relays cannot answer: there are too many, there were
// partitions of another generation, or a partition has no relay at the moment.
func (c *Dispatch) OpenSessions(ctx context.Context, t session.Tenant) (open []session.ID, ok bool) {
	if c.streams.Generation() != 1 {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	question, err := json.Marshal(openOf{t})
	if err != nil {
		return nil, false
	}
	for p := range c.streams.Partitions() {
		end, err := c.messages.LastSequence(ctx, streams.EventStream(c.streams.Generation(), p))
		if err != nil {
			return nil, false
		}
		for {
			m, err := c.conn.NC.RequestWithContext(ctx, openSubject(c.streams.Generation(), p), question)
			var a openAnswer
			if err != nil || json.Unmarshal(m.Data, &a) != nil || !a.All || len(open)+len(a.Sessions) > openMost {
				return nil, false
			}
			if a.At >= end {
				open = append(open, a.Sessions...)
				break
			}
			if conn.Pause(ctx, openAgain); ctx.Err() != nil {
				return nil, false
			}
		}
	}
	return open, true
}

func (d *dispatcher) openSessions(t session.Tenant) openAnswer {
	open, all := d.s.OpenSessions(t, openMost)
	return openAnswer{d.at.Token, open, all}
}
