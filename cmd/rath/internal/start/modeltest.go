package start

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/models"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
)

// testWithin bounds the request to one model.
const testWithin = time.Minute

func modelsTest(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "test [NAME]",
		Short: "Request a word or a vector from models of the list",
		Long: `Requests a word, or the vector of one, from the named model of the list, or from
all, and prints the time and the cost. Fallbacks are not used. Exit code 1 if a
model does not answer.`,
		Example: "  rath models test\n  rath models test fast",
		Args:    app.AtMost(1, "one name"),
		RunE: func(cmd *cobra.Command, names []string) error {
			l, err := listed(a)
			if err != nil {
				return err
			}
			all := l.All()
			if len(names) > 0 {
				chain, err := l.Chain(names[0])
				if err != nil {
					return app.WithCode(app.ExitUsage, err)
				}
				all = chain[:1]
			}
			return testModels(cmd.Context(), a, l, all)
		},
	}
}

// tested is the result of testing a model.
type tested struct {
	Name     string `json:"name"`
	URL      string `json:"url,omitempty"`   // of a pool
	Model    string `json:"model,omitempty"` // of the answer, by the server
	Error    string `json:"error,omitempty"`
	TookMS   int64  `json:"took_ms"`
	MicroUSD int64  `json:"micro_usd"`
	Cost     string `json:"cost,omitempty"`
	Dims     int    `json:"dimensions,omitempty"` // of the vector
	took     time.Duration
}

func testModels(ctx context.Context, a *app.App, l *models.List, all []*models.Model) error {
	clients := llm.ByKind(l.Clients(a.Getenv, ""))
	var results []tested
	for _, m := range all {
		for _, at := range m.Replicas() {
			r := testModel(ctx, clients, at)
			if len(m.URLs) > 0 {
				r.URL = at.URL
			}
			results = append(results, r)
		}
	}
	failed := slices.ContainsFunc(results, func(r tested) bool { return r.Error != "" })
	if done, err := app.Emit(a, results); done {
		if err == nil && failed {
			err = app.Silent(app.ExitFailed)
		}
		return err
	}
	for _, r := range results {
		if r.URL != "" {
			r.Name += " " + r.URL
		}
		if r.Error != "" {
			a.Out.Printf("%-14s %s\n", term.Line(r.Name, 14), r.Error)
			continue
		}
		cost := "cost unknown"
		switch r.Cost {
		case models.Free:
			cost = "free"
		case models.Priced, models.Stated:
			cost = usd(r.MicroUSD) + " USD, " + r.Cost
		}
		said := "answers"
		if r.Dims > 0 {
			said = fmt.Sprintf("makes %d dimensions", r.Dims)
		}
		a.Out.Printf("%-14s %s %s in %s; %s\n", term.Line(r.Name, 14), term.Line(r.Model, 30), said, view.Took(r.took), cost)
	}
	if failed {
		return app.Silent(app.ExitFailed)
	}
	return nil
}

func testModel(ctx context.Context, all llm.Models, m *models.Model) tested {
	ctx, cancel := context.WithTimeout(ctx, testWithin)
	defer cancel()
	r := tested{Name: m.Name}
	p := m.Provider(llm.Provider{MaxTokens: 16})
	began := time.Now()
	ask := askWord
	if m.Embeds() {
		ask = askVector
	}
	resp, dimensions, err := ask(ctx, all, p)
	r.took = time.Since(began)
	r.TookMS = r.took.Milliseconds()
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v", testWithin)
	}
	if err != nil {
		r.Error = term.Line(messages.Text(err), 400)
		return r
	}
	r.Dims = dimensions
	r.Model, r.MicroUSD, r.Cost = resp.Model, resp.Usage.MicroUSD, m.Cost
	switch {
	case r.MicroUSD > 0:
		r.Cost = models.Stated
	case resp.Uncounted && m.Cost != models.Free:
		r.Cost = "" // the number of tokens is unknown
	case m.Prices != nil:
		r.MicroUSD = m.Prices.Cost(resp.Usage)
	case m.Cost == models.Stated:
		r.Cost = "" // the server does not
	}
	return r
}

func askWord(ctx context.Context, all llm.Models, p llm.Provider) (resp *llm.Response, _ int, err error) {
	client, err := all.Client(ctx, p)
	if err == nil {
		resp, err = client.Complete(ctx, &llm.Request{Provider: p, Messages: []llm.Message{{Role: llm.User, Text: "Say ok."}}}, nil)
	}
	return resp, 0, err
}

// askVector requests the vector of a word; the response holds only the usage.
func askVector(ctx context.Context, all llm.Models, p llm.Provider) (*llm.Response, int, error) {
	e, err := llm.EmbedderOf(ctx, all, p)
	if err != nil {
		return nil, 0, err
	}
	out, err := e.Embed(ctx, []string{"ok"})
	if err != nil {
		return nil, 0, err
	}
	return &llm.Response{Usage: out.Usage, Uncounted: out.Uncounted, Model: out.Model}, len(out.Vectors[0]), nil
}
