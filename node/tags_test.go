package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestTags finds runs by the tags of their tasks, and by those that the workflow sets, in
// the run that resumes a failed one too. Each shows its last status.
func TestTags(t *testing.T) {
	t.Parallel()
	work := flow.Registration{Name: "bill", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			if err := errors.Join(flow.SetTag(ctx, "tier", "gold"), flow.SetTag(ctx, "draft", "")); err != nil {
				return s, err
			}
			for _, at := range []string{"begin", "end"} {
				if err := flow.SetStatus(ctx, map[string]string{"at": at}); err != nil {
					return s, err
				}
			}
			if info, _ := flow.RunInfo(ctx); string(info.Input) == `"fail"` {
				return s, errors.New("no money")
			}
			return s.With(session.AssistantText("done")), nil
		})
	}}
	n := must.Get(Start(t.Context(), &Options{
		Store: t.TempDir(), NATS: NATS{Level: "lazy", Port: -1}, Fleet: Fleet{Pool: "default"}, Workflows: []flow.Registration{work},
	}))(t)
	defer func() { must.Report(t, n.Close()) }()
	c := must.Get(n.Client(t.Context()))(t)
	defer c.Close()
	for _, task := range []messages.Task{
		{ID: "one", Tags: run.Tags{"customer": "acme", "draft": "yes"}},
		{ID: "two", Tags: run.Tags{"customer": "acme-eu"}, Input: []byte(`"fail"`)},
		{ID: "three", Input: []byte(`"fail"`)},
	} {
		must.Get(c.Do(t.Context(), "bill", task, nil))(t)
	}
	resumed := must.Get(c.Runs.Resume(t.Context(), "two", messages.Control{}))(t)
	must.Get(c.Wait(t.Context(), resumed))(t)
	for where, want := range map[string]string{
		"tag.customer=acme":                   "one",
		"tag.customer=acme*":                  "one two two-r1",
		"tag.customer=acme* and state=failed": "two two-r1",
		"tag.customer!=acme":                  "three two two-r1",
		"TAG.tier in (gold, silver)":          "one three two two-r1",
		"tag.draft=yes":                       "",
		"tag.Tier=gold":                       "",
		"not tag.customer=*":                  "three",
	} {
		var ids []string
		for _, r := range must.Get(c.Runs.List(t.Context(), &client.RunsOptions{Where: where}))(t) {
			ids = append(ids, string(r.Run))
		}
		if slices.Sort(ids); strings.Join(ids, " ") != want {
			t.Errorf("%s: %v, want %s", where, ids, want)
		}
	}
	for id, want := range map[run.ID]string{"one": "customer=acme tier=gold", resumed: "customer=acme-eu tier=gold"} {
		if r := must.Get(c.Runs.Get(t.Context(), id))(t); r.Tags.String() != want || string(r.Status) != `{"at":"end"}` {
			t.Errorf("run %s has the tags %q, want %q, and the status %s", id, r.Tags, want, r.Status)
		}
	}
	_, err := c.Submit(t.Context(), "bill", messages.Task{ID: "four", Tags: run.Tags{"k": strings.Repeat("x", 10<<10)}})
	if !errors.Is(err, run.ErrMalformed) || !strings.Contains(err.Error(), "of 10240 bytes") {
		t.Errorf("a tag of 10 kB: %v", err)
	}
	if _, err := c.Runs.List(t.Context(), &client.RunsOptions{Where: "tag.=x"}); !errors.Is(err, run.ErrMalformed) {
		t.Errorf("a condition without a key: %v", err)
	}
}
