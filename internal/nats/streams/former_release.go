package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/conn"
)

// Former releases kept the runs and signals that follow from commits in a stream
// of their own. Everything in it is in the logs too.
const (
	streamFormer = "WORK"
	prefixFormer = "rath.work."
)

// prefixTail is where they had the server tell the records that it stored in LINEAGE.
// Relays do that now: a subject there does not say what it holds any more.
const prefixTail = "rath.tail."

// former returns what is to be done about the stream of a former release, nil if
// there is none, or no server leads it now. It stays for as long as a node takes
// from it: that node would miss it.
func (c *Streams) former(ctx context.Context) (*Change, error) {
	info, err := c.LookStream(ctx, streamFormer)
	if conn.IsLeaderless(err) || errors.Is(err, conn.ErrLeaderless) {
		return nil, nil // the next plan finds it
	}
	if err != nil {
		return nil, fmt.Errorf("nats/streams: stream %s: %w", streamFormer, err)
	}
	foreign := func(subject string) bool { return !strings.HasPrefix(subject, prefixFormer) }
	if info == nil || len(info.Config.Subjects) == 0 || slices.ContainsFunc(info.Config.Subjects, foreign) {
		return nil, nil
	}
	ch := &Change{Kind: KindStream, Name: streamFormer, Action: Remove, About: "of a former release: the logs hold what is in it", want: &info.Config}
	used, err := c.takenFrom(ctx, streamFormer)
	if err != nil {
		return nil, err
	}
	if used {
		ch.Action, ch.Done, ch.About = Keep, true, "of a former release, whose nodes take from it: provision again when they have ended"
	}
	return ch, nil
}

// takenFrom reports whether a node waits for messages of a stream.
func (c *Streams) takenFrom(ctx context.Context, stream string) (bool, error) {
	used := false
	_, err := conn.Call(ctx, c.Conn, conn.APIConsumerList+stream, func(ctx context.Context) (struct{}, error) {
		s, err := c.JS.Stream(ctx, stream)
		if err != nil {
			return struct{}{}, err
		}
		list := s.ListConsumers(ctx)
		for i := range list.Info() {
			used = used || i.NumWaiting > 0
		}
		return struct{}{}, list.Err()
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, fmt.Errorf("nats/streams: consumers of stream %s: %w", stream, err)
	}
	return used, nil
}

// SettleFormer makes of what former releases left what this one needs: it removes
// their stream, unless a node of one takes from it, and sets up that of lineage. It
// takes the rights of an operator, whose Plan does the same.
func (c *Streams) SettleFormer(ctx context.Context) error {
	return errors.Join(c.removeFormer(ctx), c.settleLineage(ctx))
}

func (c *Streams) removeFormer(ctx context.Context) error {
	ch, err := c.former(ctx)
	if err != nil || ch == nil || ch.Done {
		return err
	}
	c.Logger.Info("a stream of a former release is removed: the logs hold what is in it", "stream", ch.Name)
	return c.carryOut(ctx, &Lookup{Election: conn.Election{Log: c.Logger}}, ch)
}

// settleLineage has the server tell no lineage of its own and take batches of it.
func (c *Streams) settleLineage(ctx context.Context) error {
	info, err := c.LookStream(ctx, StreamLineage)
	if err != nil {
		return fmt.Errorf("nats/streams: stream %s: %w", StreamLineage, err)
	}
	if info == nil {
		return nil
	}
	want := info.Config
	if want.RePublish != nil && want.RePublish.Destination == prefixTail+">" {
		want.RePublish = nil
	}
	want.AllowBatchPublish = want.Replicas == 1 && ordersBatches(c.NC.ConnectedServerVersion())
	if want.RePublish == info.Config.RePublish && want.AllowBatchPublish == info.Config.AllowBatchPublish {
		return nil
	}
	c.Logger.Info("a stream is set up as this release needs it: relays tell what it holds, and store several messages at once", "stream", StreamLineage)
	ch := streamChange(want)
	ch.Action = Update
	return c.carryOut(ctx, &Lookup{Election: conn.Election{Log: c.Logger}}, &ch)
}

// removeStream removes a stream, if it is there.
func (c *Streams) removeStream(ctx context.Context, name string) error {
	_, err := conn.CallWithin(ctx, c.Conn, conn.APIStreamDelete+name, provisionFor, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.JS.DeleteStream(ctx, name)
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}
