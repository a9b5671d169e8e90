package dossier_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/session"
)

// A run becomes one file. Its reader checks it without a server; one
// changed character is found.
func Example() {
	ctx := context.Background()
	log := &commitlog.Memory{}
	rt := &engine.Runtime{Store: journal.NewStore(log, nil), Values: journal.NewValues(log)}
	key := session.Key{Tenant: "acme", ID: "greeting"}
	hello := flow.Func(func(_ context.Context, s session.Session) (session.Session, error) {
		return s.With(session.UserText("hello")), nil
	})
	ex, err := rt.Begin(ctx, flow.Registration{Name: "hello", New: func() flow.Workflow { return hello }},
		journal.Task{ID: "run-1", Workflow: "hello", Session: key})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := ex.Forward(ctx); err != nil {
		fmt.Println(err)
		return
	}

	e, err := dossier.Collect(ctx, log, nil, key, "run-1", &dossier.CollectOptions{
		Stated: []dossier.Fact{{Name: dossier.FactProvider, Value: "none"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	page, err := dossier.HTML(e)
	if err != nil {
		fmt.Println(err)
		return
	}

	last, err := log.Last(ctx, key) // as recorded when the run ended
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := dossier.Verify(page, &dossier.VerifyOptions{Head: last.At.Hash})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(report.Verdict, "Anchored:", report.Anchored > 0)

	_, err = dossier.Verify(bytes.Replace(page, []byte(`\"text\":\"hello\"`), []byte(`\"text\":\"hallo\"`), 1), nil)
	fmt.Println(err != nil)
	// Output:
	// The run succeeded. Anchored: true
	// true
}
