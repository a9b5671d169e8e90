package api

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// serviceName is the name of the queries in service discovery.
	serviceName = "rath"
)

// ServeQueries answers the queries of all tenants, each by one of the nodes. They form a
// service that "nats micro ls" shows. Each answer, also an error, is one message, see
// wire.ReplyError.
func (c *Conn) ServeQueries(ctx context.Context, q *Queries) (*conn.Service, error) {
	a := answerer{c, q}
	s := c.Conn.NewService(ctx)
	version := q.Version
	if version == "" {
		version = "0.0.0"
	}
	svc, err := micro.AddService(c.Conn.NC, micro.Config{
		Name: serviceName, Version: version, QueueGroup: queueGroup,
		Description: "reads runs, sessions and lineage",
	})
	if err == nil {
		for _, v := range a.verbs() {
			if err = svc.AddEndpoint(v.name, c.endpoint(s, v), micro.WithEndpointSubject(messages.QueryPrefix+"*."+v.name)); err != nil {
				break
			}
		}
	}
	if err == nil {
		err = c.Conn.Flush(ctx)
	}
	if err != nil {
		s.Cancel()
		if svc != nil {
			_ = svc.Stop()
		}
		return nil, fmt.Errorf("nats/api: serve queries: %w", err)
	}
	s.Close = func() error { return errors.Join(svc.Stop(), c.Conn.Handled()) }
	return s, nil
}

type verb struct {
	name   string
	answer func(ctx context.Context, t session.Tenant, q wire.Query) (any, error)
}

func (a answerer) verbs() []verb {
	return []verb{
		{messages.QueryRuns, a.runs},
		{messages.QueryRun, a.run},
		{messages.QueryResult, a.result},
		{messages.QuerySession, a.session},
		{messages.QueryGraph, a.graph},
		{messages.QueryLineage, a.lineage},
		{messages.QueryWorkflows, a.workflows},
		{messages.QueryNodes, a.nodes},
		{messages.QueryLetters, a.letters},
		{messages.QueryTools, a.tools},
		{messages.QueryReplay, a.replay},
		{messages.QueryLive, a.live},
		{messages.QueryBlob, a.blob},
		{messages.QueryMissing, a.missing},
		{messages.QueryCommits, a.commits},
		{messages.QueryTasks, a.tasks},
		{messages.QueryMemory, a.memory},
		{messages.QueryNote, a.note},
		{messages.QueryRecall, a.recall},
		{messages.QueryQuota, a.quota},
	}
}

// endpoint answers in the background. It publishes the answers itself: a
// micro.Request may be used by its handler only.
func (c *Conn) endpoint(s *conn.Service, v verb) micro.HandlerFunc {
	return func(r micro.Request) {
		subject, body, inbox := r.Subject(), r.Data(), r.Reply()
		if inbox == "" {
			return
		}
		s.Go(conn.Request{Subject: subject, Size: len(body)}, func(ctx context.Context) {
			answer, err := v.ask(ctx, subject, body)
			c.reply(inbox, subject, answer, unanswered(ctx, err))
		}, func(err error) { c.reply(inbox, subject, nil, err) })
	}
}

// unanswered marks the error of a request that was not answered in time, or that an ending
// node received: another node can answer it.
func unanswered(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: the node that was asked ends, or took too long: %w", session.ErrUnavailable, err)
}

// reply publishes an answer or, with the headers of a service's error, the error.
func (c *Conn) reply(inbox, subject string, answer any, err error) {
	m := &nats.Msg{Subject: inbox}
	if err == nil {
		m.Data, err = messages.Encode(answer)
	}
	if err != nil {
		e := wire.ErrorOf(err)
		m.Header = nats.Header{micro.ErrorHeader: {oneLine(e.Text)}, micro.ErrorCodeHeader: {string(e.Code)}}
		m.Data, err = messages.Encode(e)
	}
	if err == nil {
		err = c.Conn.NC.PublishMsg(m)
	}
	if err != nil {
		c.Conn.Logger.Warn("a query was not answered", "subject", subject, "err", err)
	}
}

func (v verb) ask(ctx context.Context, subject string, data []byte) (any, error) {
	t, _, ok := messages.ParseQuerySubject(subject)
	if !ok {
		return nil, fmt.Errorf("subject %q: %w: request rath.query.<tenant>.<verb>", subject, run.ErrMalformed)
	}
	q, err := wire.DecodeQuery(data)
	if err != nil {
		return nil, err
	}
	return v.answer(ctx, t, q)
}

// Answer answers a query of a tenant in this process.
func (q *Queries) Answer(ctx context.Context, c *Conn, t session.Tenant, name string, query wire.Query) (any, error) {
	for _, v := range (answerer{c, q}).verbs() {
		if v.name == name {
			return v.answer(ctx, t, query)
		}
	}
	return nil, fmt.Errorf("query %s: %w", name, run.ErrNotSupported)
}

// oneLine makes text fit for a header.
func oneLine(s string) string {
	return string(slices.Collect(func(yield func(byte) bool) {
		for i := range min(len(s), 400) {
			if c := s[i]; c >= ' ' && c < 0x7f && !yield(c) {
				return
			}
		}
	}))
}
