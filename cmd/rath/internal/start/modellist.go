package start

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/models"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
)

// modelRow is a model as programs read it.
type modelRow struct {
	Name      string   `json:"name"`
	Default   bool     `json:"default,omitempty"`
	Kind      string   `json:"kind"`
	URL       string   `json:"url,omitempty"`
	URLs      []string `json:"urls,omitempty"` // of a pool
	ID        string   `json:"id"`
	Key       string   `json:"key,omitempty"`     // the reference
	NoKey     string   `json:"no_key,omitempty"`  // why it stands for none here
	Context   int64    `json:"context,omitempty"` // tokens
	Output    int64    `json:"output,omitempty"`
	Can       []string `json:"can"`
	Dims      int      `json:"dimensions,omitempty"`
	Cost      string   `json:"cost,omitempty"`
	Prices    *price   `json:"prices,omitempty"`
	Fallbacks []string `json:"fallbacks,omitempty"`
	Limits    *limits  `json:"limits,omitempty"`
	KeyLimits *limits  `json:"key_limits,omitempty"`
}

// limits are for a minute and all nodes, and for the calls of a tenant at one time.
type limits struct {
	Requests    int64 `json:"requests,omitempty"`
	Tokens      int64 `json:"tokens,omitempty"`
	Concurrency int64 `json:"concurrency,omitempty"`
}

func limitsOf(l models.Limit) *limits {
	if l == (models.Limit{}) {
		return nil
	}
	return &limits{l.Requests, l.Tokens, l.Concurrency}
}

// price is in micro-USD for a million tokens.
type price struct {
	Date        string `json:"date"`
	Input       int64  `json:"input"`
	CachedInput int64  `json:"cached_input"`
	CacheWrite  int64  `json:"cache_write"`
	Output      int64  `json:"output"`
}

func priceOf(p *models.Prices) *price {
	if p == nil {
		return nil
	}
	return &price{p.Date, p.Input, p.CachedInput, p.CacheWrite, p.Output}
}

// usd is an amount of micro-USD, without the zeros at its end.
func usd(n int64) string {
	text := fmt.Sprintf("%d.%06d", n/1_000_000, n%1_000_000)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// listed returns the list that is configured.
func listed(a *app.App) (*models.List, error) {
	name := a.Config.Models.Value
	if name == "" {
		return nil, app.Fail(app.ExitUsage, "there is no list of models: name its file by RATH_MODELS, or as \"models\" in the configuration file; without one a model is that of OPENAI_BASE_URL")
	}
	return models.Read(name)
}

func modelsLs(a *app.App) *cobra.Command {
	var public bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the models that tasks and agents name",
		Long: `Lists the models of the list: name, server, key (missing if it is not there),
and the price of a million tokens in and out in US dollars, or that it makes
vectors of texts; --format jsonl has the rest, such as limits. docs/models.md
says how a list is written. --public lists published prices. They are to be
checked.`,
		Example: "  rath models ls\n  rath models ls --public\n  rath models ls --format jsonl | jq .prices",
		Args:    app.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			if public {
				return publicPrices(a)
			}
			l, err := listed(a)
			if err != nil {
				return err
			}
			return listModels(a, l)
		},
	}
	cmd.Flags().BoolVar(&public, "public", false, "list published prices")
	return cmd
}

func listModels(a *app.App, l *models.List) error {
	all := []modelRow{}
	for _, m := range l.All() {
		r := modelRow{m.Name, m.Name == l.Default, m.Kind, m.URL, m.URLs, m.ID, m.Key, "", m.Context, m.Output, m.Can, m.Dimensions, m.Cost, priceOf(m.Prices), m.Fallbacks, limitsOf(m.Limit), nil}
		if k, ok := l.KeyLimit(m); ok {
			r.KeyLimits = limitsOf(k.Limit)
		}
		if _, err := l.Key(a.Getenv, m.Key); m.Key != "" && err != nil {
			r.NoKey = err.Error()
		}
		all = append(all, r)
	}
	if done, err := app.Emit(a, all); done {
		return err
	}
	rows := make([][]string, len(all))
	for i, r := range all {
		name, key, server := r.Name, "-", r.URL
		if r.Default {
			name += " *"
		}
		if _, rest, ok := strings.Cut(server, "://"); ok {
			server, _, _ = strings.Cut(rest, "/")
		}
		if more := len(r.URLs) - 1; more > 0 {
			server = fmt.Sprintf("%s +%d", term.Line(server, 14), more)
		}
		switch {
		case r.NoKey != "":
			key = "missing"
		case r.Key != "":
			key = "there"
		}
		cost := []string{r.Cost, ""}
		switch {
		case r.Prices != nil:
			cost = []string{usd(r.Prices.Input), usd(r.Prices.Output)}
		case r.Cost == "":
			cost[0] = "unknown"
		}
		if slices.Contains(r.Can, models.CanEmbed) {
			cost[1] = "vectors"
		}
		rows[i] = []string{term.Line(name, 14), term.Line(server, 18), term.Line(r.ID, 16), key, cost[0], cost[1], term.Line(strings.Join(r.Fallbacks, ","), 12)}
	}
	a.Out.Rows([]string{"NAME", "SERVER", "MODEL", "KEY", "IN", "OUT", "FALLBACKS"}, rows)
	for _, r := range all {
		if r.NoKey != "" {
			a.Remark("%s: %s", r.Name, r.NoKey)
		}
	}
	return nil
}

func publicPrices(a *app.App) error {
	all, err := models.PublicPrices()
	if err != nil {
		return err
	}
	type row struct {
		ID string `json:"id"`
		*price
	}
	list := make([]row, len(all))
	rows := make([][]string, len(all))
	for i, p := range all {
		list[i] = row{p.ID, priceOf(&p.Prices)}
		rows[i] = []string{p.ID, usd(p.Input), usd(p.CachedInput), usd(p.CacheWrite), usd(p.Output), p.Date}
	}
	if done, err := app.Emit(a, list); done {
		return err
	}
	a.Out.Rows([]string{"MODEL", "IN", "CACHED", "WRITE", "OUT", "AS OF"}, rows)
	a.Remark("US dollars for a million tokens, to be checked with the provider")
	return nil
}

// testWithin bounds the question to one model.
const testWithin = time.Minute

func modelsImport(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Write a list of the providers in OpenRath's config.json",
		Long: `Writes the providers of OpenRath's configuration file, such as
~/.openrath/config.json, as a list of models to standard output. Keys stay where
they are: the list names the variable of the environment that each is to be in.
What a list has no place for is told on standard error.`,
		Example: "  rath models import ~/.openrath/config.json > models.yaml",
		Args:    app.Exactly(1, "one file"),
		RunE: func(_ *cobra.Command, args []string) error {
			data, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			list, remarks, err := models.FromOpenRath(args[0], data)
			if err != nil {
				return app.WithCode(app.ExitUsage, err)
			}
			for _, r := range remarks {
				a.Remark("%s", r)
			}
			a.Out.Printf("%s", list)
			return nil
		},
	}
}

func modelsTest(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "test [NAME]",
		Short: "Ask models of the list for a word or a vector",
		Long: `Asks the named model of the list, or each, for a word, or for the vector of one,
and says how long the answer took and what it cost. A model's fallbacks are not
asked for it. It exits with 1 if one does not answer.`,
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

// tested is what came of asking a model.
type tested struct {
	Name     string `json:"name"`
	URL      string `json:"url,omitempty"`   // of a pool
	Model    string `json:"model,omitempty"` // that answered, in the server's words
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
		r.Cost = "" // nothing says of how many tokens
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

// askVector asks for the vector of a word; of the response there is the usage.
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
