package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// intruder holds the credentials of a node that is bound to acme, and runs a foreign
// program.
type intruder struct {
	*login
	t *testing.T
}

func intrude(t *testing.T, srv *natsserver.Server) *intruder {
	t.Helper()
	l := &login{refused: make(chan error, 64)}
	var err error
	l.nc, err = nats.Connect(srv.URL(), nats.UserInfo("host-acme", "host"), nats.CustomInboxPrefix("_RATH"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		l.refused <- err
	}))
	must.Do(t, err)
	t.Cleanup(l.nc.Close)
	return &intruder{l, t}
}

// denied reports whether the server rejected the message just sent to a subject.
func (i *intruder) denied(subject string) bool {
	i.t.Helper()
	for end := time.After(soon); ; {
		select {
		case err := <-i.refused:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				i.t.Errorf("the server says %v", err)
			}
			if strings.Contains(err.Error(), `"`+subject+`"`) {
				return true
			}
		case <-end:
			return false
		}
	}
}

// asks sends a permitted request, and returns the error of the answer.
func (i *intruder) asks(verb string, header nats.Header, body []byte) error {
	i.t.Helper()
	m, err := i.nc.RequestMsg(&nats.Msg{Subject: messages.StoreSubject("acme", verb), Header: header, Data: body}, soon)
	if err != nil {
		i.t.Fatalf("%s: %v", verb, err)
	}
	if err := wire.ReplyError(m.Data); err != nil {
		return err
	}
	if len(m.Header["Nats-Service-Error-Code"]) > 0 {
		i.t.Fatalf("%s: an error that cannot be read: %s", verb, m.Data)
	}
	return nil
}

// TestHostileBoundNode has the holder of the credentials of a node that is bound to
// acme try, by hand, to reach another tenant: the server or the node that it asks
// rejects every attempt. bolt's data is unchanged afterwards, and the holder can still
// work for acme.
func TestHostileBoundNode(t *testing.T) {
	t.Parallel()
	srv, _ := tenants(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	shared := member(t, srv, Options{Fleet: Fleet{Pool: "shared"}, Workflows: []flow.Registration{named("both", "shared")}})
	bob := clientOf(t, srv, "bolt", "bob")
	victim, err := bob.Do(ctx, "both", messages.Task{ID: "victim"}, nil)
	if err != nil || victim.State != run.Succeeded {
		t.Fatalf("%+v, %v", victim, err)
	}
	theirs := session.Key{Tenant: "bolt", ID: victim.Session}
	end, err := shared.Log().Last(ctx, theirs)
	must.Do(t, err)
	before := stored(t, srv)
	i := intrude(t, srv)

	// The attempts that the server rejects.
	stream, subject, err := eventlog.EventSubject(theirs)
	must.Do(t, err)
	forged, err := commitlog.Encode(sessiontest.Commit(theirs, end.At, "forged"))
	must.Do(t, err)
	for name, to := range map[string]string{
		"a commit of another tenant":             subject,
		"a commit of its own":                    strings.Replace(subject, ".bolt.", ".acme.", 1),
		"a snapshot":                             "rath.snap.bolt." + string(theirs.ID),
		"a page of snapshots":                    "rath.page.acme.x",
		"a blob":                                 "rath.blob.bolt.x",
		"a result of another tenant":             "rath.run.bolt.victim.result",
		"a result of its own":                    "rath.run.acme.own.result",
		"an event of another tenant":             "rath.run.bolt.victim.event",
		"a delta of another tenant":              "rath.run.bolt.victim.delta",
		"an alias":                               "$KV.ALIAS.bolt.run.own",
		"an entry of a node":                     "$KV.NODE." + shared.Incarnation(),
		"a workflow on offer":                    "$KV.REGISTRY.workflow.shared.both",
		"a task of another tenant":               "rath.task.bolt.anonymous.both",
		"lineage":                                "rath.lineage.bolt.x.tree",
		"lineage as it happens":                  "rath.tail.bolt.x.ended.x",
		"a dead letter":                          "rath.dlq.bolt.both.task.1-1",
		"a cancel for another tenant":            "rath.ctl.bolt.bob.victim.cancel",
		"a cancel for its own":                   "rath.ctl.acme.host-acme.victim.cancel",
		"a blob under another name":              "rath.ctl.acme.ann.blob.x.put",
		"a question about another tenant":        "rath.query.bolt.runs",
		"work for a node":                        messages.DeliverSubject(shared.Incarnation()),
		"a run for a node":                       messages.NodeSubject(shared.Incarnation(), "dispatch"),
		"the end of a node":                      messages.NodeSubject(shared.Incarnation(), messages.NodeDrain),
		"how a node stands":                      "rath.node.slots",
		"a granted slot":                         "rath.node.grant.1.0",
		"work for a bound node":                  "rath.host.acme.tenant_acme_AAAAAAAAAAAA.deliver",
		"a call of another tenant's tool":        "rath.tool.bolt.send",
		"the store of another tenant":            messages.StoreSubject("bolt", "about"),
		"the store of all tenants":               "rath.store.*.about",
		"the state of streams":                   "$JS.API.STREAM.INFO.EV_1_0",
		"a message from the leader of a stream":  "$JS.API.STREAM.MSG.GET." + stream,
		"a message from any replica of a stream": "$JS.API.DIRECT.GET." + stream,
		"a consumer":                             "$JS.API.CONSUMER.CREATE." + stream + ".x.rath.ev.>",
		"messages of a consumer":                 "$JS.API.CONSUMER.MSG.NEXT.TASKS.tasks",
		"a purge":                                "$JS.API.STREAM.PURGE." + stream,
		"an acknowledgement":                     "$JS.ACK.TASKS.tasks.1.1.1.1.1",
		"an answer in another's inbox":           "_INBOX.x.y",
		"an answer to a node":                    "_RATH.x.y",
	} {
		must.Do(t, i.nc.Publish(to, forged))
		if !i.denied(to) {
			t.Errorf("%s: the server lets it publish to %s", name, to)
		}
	}
	for name, to := range map[string]string{
		"commits":                       "rath.ev.>",
		"what nodes say":                "rath.node.>",
		"what bound nodes ask":          "rath.store.acme.>",
		"what nodes of others are sent": "rath.host.bolt.>",
		"control of its tenant":         "rath.ctl.acme.>",
		"runs of another tenant":        "rath.run.bolt.>",
		"lineage of another tenant":     "rath.tail.bolt.>",
		"calls of its tenant's tools":   "rath.tool.acme.*",
		"answers to clients":            "_INBOX.>",
		"everything":                    ">",
	} {
		sub := must.Get(i.nc.SubscribeSync(to))(t)
		if !i.denied(to) {
			t.Errorf("%s: the server lets it subscribe to %s", name, to)
		}
		_ = sub.Unsubscribe() // there is none
	}

	// A request whose answer would be a commit of bolt, a result, or a node's message:
	// it is rejected, or the answer arrives in its own account, where it is not stored.
	for _, reply := range []string{subject, "rath.run.bolt.victim.result", "rath.node.slots", "$KV.NODE." + shared.Incarnation()} {
		for _, to := range []string{messages.StoreSubject("acme", "about"), messages.StoreSubject("acme", "last"), "rath.query.acme.nodes"} {
			m := &nats.Msg{Subject: to, Reply: reply, Header: nats.Header{"Rath-Session": {string(theirs.ID)}}}
			must.Do(t, i.nc.PublishMsg(m))
		}
	}

	// The attempts that the asked node rejects.
	positioned := func(k session.Key) nats.Header {
		h := eventlog.HeaderOf(end.At)
		h["Rath-Session"] = []string{string(k.ID)}
		return h
	}
	encode := func(v any) []byte {
		data := must.Get(json.Marshal(v))(t)
		return data
	}
	mine := session.Key{Tenant: "acme", ID: shared.link.conn.Logs.Minter().ID("own")}
	commit := func(k session.Key, at commitlog.Position, events ...session.Event) []byte {
		raw := must.Get(commitlog.Encode(sessiontest.Next(k, at, events...)))(t)
		return raw
	}
	link := session.Link{Ref: session.Ref{Key: theirs, Version: 1}, Seq: end.At.Seq, Hash: end.At.Hash, Token: end.At.Token}
	entry := func(incarnation string) []byte { return encode(messages.Node{Incarnation: incarnation, Name: "x"}) }
	standing := func(incarnation string) []byte {
		return encode(map[string]any{"incarnation": incarnation, "pool": "shared", "stopping": true})
	}
	many := make([]messages.Workflow, 129)
	for i := range many {
		many[i].Name = fmt.Sprint("w", i)
	}
	work := func(of session.Key, to string) []byte {
		return encode(map[string]any{"incarnation": to, "work": map[string]any{
			"tenant": of.Tenant, "session": of.ID, "run": "victim", "cancel": map[string]any{"by": "x", "id": "x"},
		}})
	}
	for name, try := range map[string]struct {
		verb   string
		header nats.Header
		body   []byte
		want   error
	}{
		"a commit of another tenant":                    {"append", positioned(theirs), forged, session.ErrTenant},
		"a first commit of another tenant":              {"append", eventlog.HeaderOf(commitlog.Position{}), commit(session.Key{Tenant: "bolt", ID: mine.ID}, commitlog.Position{}, session.ChunkEvent(session.UserText("x"))), session.ErrTenant},
		"a fork of another tenant's session":            {"append", eventlog.HeaderOf(commitlog.Position{}), commit(mine, commitlog.Position{}, session.OpenedEvent(session.Opening{Kind: session.OpenFork, Parents: []session.Link{link}})), session.ErrTenant},
		"no commit":                                     {"append", positioned(mine), []byte(`{}`), run.ErrMalformed},
		"a commit with other bytes":                     {"append", eventlog.HeaderOf(commitlog.Position{}), append(commit(mine, commitlog.Position{}, session.ChunkEvent(session.UserText("x"))), ' '), run.ErrMalformed},
		"a session of another tenant by its id":         {"last", positioned(theirs), nil, session.ErrNotFound},
		"a snapshot of another tenant by its id":        {"load", positioned(theirs), nil, session.ErrNotFound},
		"a session with wildcards":                      {"last", nats.Header{"Rath-Session": {"*"}}, nil, nil},
		"work for another tenant":                       {"deliver", nil, work(theirs, shared.Incarnation()), session.ErrTenant},
		"work for another tenant's node":                {"deliver", nil, work(mine, "tenant_bolt_AAAAAAAAAAAA"), session.ErrTenant},
		"the entry of a node for all tenants":           {"announce", nil, entry(shared.Incarnation()), session.ErrTenant},
		"the entry of another tenant's node":            {"announce", nil, entry("tenant_bolt_AAAAAAAAAAAA"), session.ErrTenant},
		"an entry with escapes":                         {"announce", nil, encode(messages.Node{Incarnation: "tenant_acme_AAAAAAAAAAAA", Name: "\x1b[2J"}), run.ErrMalformed},
		"the end of the entry of a node":                {"leave", nil, []byte(shared.Incarnation()), session.ErrTenant},
		"a page by a name that is none":                 {"loadpage", nats.Header{"Rath-Page": {">"}}, nil, nil},
		"more workflows than a tenant may offer":        {"offer", nil, encode(map[string]any{"workflows": many}), run.ErrBusy},
		"a workflow that is too large":                  {"offer", nil, encode(map[string]any{"workflows": []messages.Workflow{{Name: "x", Description: strings.Repeat("x", 64<<10)}}}), session.ErrTooLarge},
		"an entry that is too large":                    {"announce", nil, encode(messages.Node{Incarnation: "tenant_acme_AAAAAAAAAAAA", Offers: []string{strings.Repeat("x", 64<<10)}}), session.ErrTooLarge},
		"a verb that there is not":                      {"purge", nil, nil, run.ErrNotSupported},
		"how a node for all tenants stands, as request": {"standing", nil, standing(shared.Incarnation()), run.ErrNotSupported},
	} {
		err := i.asks(try.verb, try.header, try.body)
		if err == nil || try.want != nil && !errors.Is(err, try.want) {
			t.Errorf("%s: %v; want %v", name, err, try.want)
		}
	}

	// Messages without an answer: relays get no entry under another name. They get its
	// own entry, and with the most slots of its pool it would be the first to get a run.
	sent, err := i.nc.SubscribeSync("rath.host.acme.>")
	must.Do(t, err)
	heard := operatorHears(t, srv, "rath.node.slots")
	for _, incarnation := range []string{shared.Incarnation(), "tenant_bolt_AAAAAAAAAAAA", "tenant_acme_.", ""} {
		must.Do(t, i.nc.Publish(messages.StoreSubject("acme", "standing"), standing(incarnation)))
	}
	must.Do(t, i.nc.Publish(messages.StoreSubject("acme", "standing"), encode(map[string]any{"incarnation": "tenant_acme_AAAAAAAAAAAA", "pool": "shared", "free": 60000})))
	for own := false; !own; {
		m, err := heard.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatal("its own word is not passed on: ", err)
		}
		var st struct {
			Incarnation string
			Stopping    bool
		}
		if err := json.Unmarshal(m.Data, &st); err != nil || st.Stopping || st.Incarnation == "tenant_bolt_AAAAAAAAAAAA" {
			t.Errorf("relays heard %s, %v", m.Data, err)
		}
		own = st.Incarnation == "tenant_acme_AAAAAAAAAAAA"
	}

	// An offer is visible to acme only, also under the name of another workflow.
	if err := i.asks("offer", nil, encode(map[string]any{"workflows": []messages.Workflow{{Name: "both", Revision: "9", Pool: "shared"}}})); err != nil {
		t.Errorf("an offer to its tenant: %v", err)
	}
	if r, err := bob.Do(ctx, "both", messages.Task{ID: "after"}, nil); err != nil || r.Output != "shared" {
		t.Errorf("another tenant's run after that: %+v, %v", r, err)
	}
	for {
		if m, err := sent.NextMsg(10 * time.Millisecond); err != nil {
			break
		} else if strings.Contains(string(m.Data), "bolt") || strings.Contains(string(m.Data), "after") {
			t.Errorf("it was sent, on %s, %s", m.Subject, m.Data)
		}
	}
	if r, err := bob.Runs.Result(ctx, "victim"); err != nil || r.State != victim.State || r.Output != victim.Output {
		t.Errorf("the result of another tenant: %+v, %v", r, err)
	}
	for name, was := range before {
		if now := stored(t, srv)[name]; now != was && strings.Contains(name, "bolt") {
			t.Errorf("%s: %s, was %s", name, now, was)
		}
	}
	if last, err := shared.Log().Last(ctx, theirs); err != nil || last.At != end.At {
		t.Errorf("the log of another tenant ends at %+v, %v; was %+v", last.At, err, end.At)
	}
}

// operatorHears subscribes to messages of nodes.
func operatorHears(t *testing.T, srv *natsserver.Server, subject string) *nats.Subscription {
	t.Helper()
	user, password := srv.Node()
	nc, err := nats.Connect(srv.URL(), nats.UserInfo(user, password), nats.CustomInboxPrefix("_RATH"))
	must.Do(t, err)
	t.Cleanup(nc.Close)
	sub, err := nc.SubscribeSync(subject)
	if err == nil {
		err = nc.FlushTimeout(soon)
	}
	must.Do(t, err)
	return sub
}

// stored returns the victim's data in the streams, by subject.
func stored(t *testing.T, srv *natsserver.Server) map[string]string {
	t.Helper()
	op := operator(t, srv)
	all := map[string]string{}
	for _, name := range []string{streams.EventStream(1, 0), "RESULT", "SNAP", "BLOB", "KV_NODE", "KV_REGISTRY", "KV_ALIAS", "KV_ACCESS"} {
		s := must.Get(op.Conn.JS.Stream(t.Context(), name))(t)
		info := must.Get(s.Info(t.Context(), jetstream.WithSubjectFilter(">")))(t)
		for subject, n := range info.State.Subjects {
			if !strings.Contains(subject, "after") {
				all[name+" "+subject] = fmt.Sprint(n)
			}
		}
	}
	return all
}
