package natsbus

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// values yields the entries of a bucket under a key filter.
func (c *Conn) values(ctx context.Context, bucket, filter string) iter.Seq2[stored, error] {
	return func(yield func(stored, error) bool) {
		for m, err := range c.each(ctx, "KV_"+bucket, keySubject(bucket, filter), 1) {
			if err == nil {
				if op := m.Header.Get("KV-Operation"); op == "DEL" || op == "PURGE" {
					continue
				}
			}
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}

// announceEvery is how often a node renews its entry, which lives three times
// as long.
const announceEvery = NodeTTL / 3

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
			c.o.Logger.Warn("the node's entry was not renewed", "err", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
			defer cancel()
			m := &nats.Msg{Subject: keySubject(BucketNode, incarnation), Header: nats.Header{"KV-Operation": {"DEL"}}}
			if _, err := c.publish(last, m); err != nil {
				c.o.Logger.Info("the node's entry will expire by itself", "err", err)
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
	_, err = c.publish(ctx, &nats.Msg{Subject: keySubject(BucketNode, n.Incarnation), Data: data})
	return err
}

// Nodes returns the nodes that live, sorted by name.
func (c *Conn) Nodes(ctx context.Context) ([]messages.Node, error) {
	var out []messages.Node
	for m, err := range c.values(ctx, BucketNode, ">") {
		if err != nil {
			return nil, fmt.Errorf("natsbus: nodes: %w", err)
		}
		var n messages.Node
		if json.Unmarshal(m.Data, &n) == nil {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b messages.Node) int {
		return strings.Compare(a.Name+" "+a.Incarnation, b.Name+" "+b.Incarnation)
	})
	return out, nil
}
