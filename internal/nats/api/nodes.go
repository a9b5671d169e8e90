package api

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

const (
	// announceEvery is how often a node renews its entry, which lives three times as long.
	announceEvery = streams.NodeTTL / 3
	// announceAgain is the pause before a node retries a failed renewal. At a slow server
	// or node three attempts in a row may fail while the node is alive.
	announceAgain = time.Second
)

// silentAfter is the age of an entry from which its node is reported as silent: a renewal
// is missing.
const silentAfter = announceEvery + announceEvery/2

// renewal is the time at which this connection last renewed an entry. It relates the local
// time to the server's, which entries have.
type renewal struct {
	incarnation string
	seq         uint64
	at          time.Time
}

// Announce keeps the node's entry in the bucket NODE until ctx ends, and then removes it.
// It calls about before each renewal, and entered once the entry is stored.
func (c *Conn) Announce(ctx context.Context, incarnation string, about func() messages.Node, entered func()) error {
	if err := session.ValidID("incarnation", incarnation); err != nil {
		return err
	}
	return announcing(ctx, c.Conn.Logger, func(ctx context.Context) error {
		n := about()
		n.Incarnation = incarnation
		seq, err := c.putNode(ctx, n)
		if err == nil {
			c.renewed.Store(&renewal{incarnation, seq, time.Now()})
		}
		return err
	}, func(ctx context.Context) error { return c.removeNode(ctx, incarnation) }, entered)
}

// announcing renews an entry until ctx ends, and removes it then.
func announcing(ctx context.Context, log *slog.Logger, renew, remove func(context.Context) error, entered func()) error {
	entered = sync.OnceFunc(entered)
	for missed := false; ; {
		err, next := renew(ctx), announceEvery
		switch {
		case err == nil:
			entered()
		case ctx.Err() == nil:
			if !missed {
				log.Warn("the node's entry was not renewed and is tried again each second", "err", err)
			}
			next = announceAgain
		}
		missed = err != nil
		select {
		case <-time.After(next):
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), conn.RequestTimeout)
			defer cancel()
			if err := remove(last); err != nil {
				log.Info("the node's entry will expire by itself", "err", err)
			}
			return nil
		}
	}
}

func (c *Conn) putNode(ctx context.Context, n messages.Node) (seq uint64, err error) {
	data, err := messages.Encode(n)
	if err != nil {
		return 0, err
	}
	return c.Messages.Publish(ctx, &nats.Msg{Subject: streams.KeySubject(streams.BucketNode, n.Incarnation), Data: data})
}

func (c *Conn) removeNode(ctx context.Context, incarnation string) error {
	_, err := c.Messages.Publish(ctx, &nats.Msg{Subject: streams.KeySubject(streams.BucketNode, incarnation), Header: nats.Header{"KV-Operation": {"DEL"}}})
	return err
}

// Nodes returns the living nodes, sorted by name, and those that died less than [NodeTTL]
// ago, which Silent marks.
func (c *Conn) Nodes(ctx context.Context) ([]messages.Node, error) {
	var out []messages.Node
	var renewed []time.Time
	own, now := c.renewed.Load(), time.Now()
	for m, err := range c.Streams.Values(ctx, streams.BucketNode, ">") {
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
			if now = m.Time; m.Seq == own.seq { // otherwise it was just renewed
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
