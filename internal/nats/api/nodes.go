package api

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// announceEvery is how often a node renews its entry, which lives three times
// as long.
const announceEvery = streams.NodeTTL / 3

// silentAfter is when a node that has not renewed its entry is told as silent: a
// renewal is missing.
const silentAfter = announceEvery + announceEvery/2

// renewal is when this connection last renewed an entry. It tells what the time is
// on the server, whose times entries have.
type renewal struct {
	incarnation string
	seq         uint64
	at          time.Time
}

// Announce keeps the node's entry in the bucket NODE until ctx ends, and takes
// it away then. about is asked before each renewal.
func (c *Conn) Announce(ctx context.Context, incarnation string, about func() messages.Node) error {
	if err := session.ValidID("incarnation", incarnation); err != nil {
		return err
	}
	t := time.NewTicker(announceEvery)
	defer t.Stop()
	for {
		n := about()
		n.Incarnation = incarnation
		if err := c.putNode(ctx, n); err != nil && ctx.Err() == nil {
			c.Logger.Warn("the node's entry was not renewed", "err", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), conn.RequestTimeout)
			defer cancel()
			m := &nats.Msg{Subject: streams.KeySubject(streams.BucketNode, incarnation), Header: nats.Header{"KV-Operation": {"DEL"}}}
			if _, err := c.Publish(last, m); err != nil {
				c.Logger.Info("the node's entry will expire by itself", "err", err)
			}
			return nil
		}
	}
}

func (c *Conn) putNode(ctx context.Context, n messages.Node) error {
	data, err := messages.Encode(n)
	if err != nil {
		return err
	}
	seq, err := c.Publish(ctx, &nats.Msg{Subject: streams.KeySubject(streams.BucketNode, n.Incarnation), Data: data})
	if err == nil {
		c.renewed.Store(&renewal{n.Incarnation, seq, time.Now()})
	}
	return err
}

// Nodes returns the nodes that live, sorted by name, and those that died less than
// [NodeTTL] ago; see messages.Node.Silent.
func (c *Conn) Nodes(ctx context.Context) ([]messages.Node, error) {
	var out []messages.Node
	var renewed []time.Time
	own, now := c.renewed.Load(), time.Now()
	for m, err := range c.Values(ctx, streams.BucketNode, ">") {
		if err != nil {
			return nil, fmt.Errorf("nats/api: nodes: %w", err)
		}
		var n messages.Node
		if json.Unmarshal(m.Data, &n) != nil {
			continue
		}
		n.Dead, n.Silent = false, 0
		out, renewed = append(out, n), append(renewed, m.Time)
		if own != nil && n.Incarnation == own.incarnation {
			if now = m.Time; m.Seq == own.seq { // else it was renewed at this moment
				now = now.Add(time.Since(own.at))
			}
		}
	}
	for i := range out {
		if d := now.Sub(renewed[i]); d > silentAfter {
			out[i].Silent = d.Milliseconds()
		}
	}
	slices.SortFunc(out, func(a, b messages.Node) int {
		return strings.Compare(a.Name+" "+a.Incarnation, b.Name+" "+b.Incarnation)
	})
	return out, nil
}
