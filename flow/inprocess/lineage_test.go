package inprocess_test

import (
	"context"
	"slices"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/inprocess"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// TestLineage: a program asks for the records of a session and, by the fork that they
// name, for those of the fork.
func TestLineage(t *testing.T) {
	work := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		child, err := flow.Fork(ctx, s)
		if err != nil {
			return s, err
		}
		_, err = (&flow.Agent{Name: "worker"}).Forward(ctx, child.With(session.UserText("go")))
		return s, err
	})
	r := &inprocess.Runner{Models: must.Get(scripted.New(nil, nil))(t)}
	s := must.Get(r.Run(t.Context(), work, session.New(session.UserText("Hello."))))(t)
	records := must.Get(r.Lineage(t.Context(), s.Key()))(t)
	var kinds []messages.Kind
	var fork session.ID
	for _, rec := range records {
		kinds = append(kinds, rec.Kind)
		if rec.Kind == messages.KindBranched {
			fork = rec.Branches[0].Session
		}
	}
	if !slices.Contains(kinds, messages.KindEnded) || fork == "" {
		t.Fatalf("records %q, fork %q", kinds, fork)
	}
	of := must.Get(r.Lineage(t.Context(), session.Key{Tenant: s.Key().Tenant, ID: fork}))(t)
	if !slices.ContainsFunc(of, func(rec messages.Record) bool { return rec.Kind == messages.KindModel && rec.Agent == "worker" }) {
		t.Errorf("records of the fork: %+v", of)
	}
	if none := must.Get(r.Lineage(t.Context(), session.Key{Tenant: s.Key().Tenant, ID: "nothing"}))(t); len(none) != 0 {
		t.Errorf("records of no session: %+v", none)
	}
}
