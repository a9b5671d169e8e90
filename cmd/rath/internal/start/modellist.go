package start

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/models"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/llm"
)

// modelRow is a model as programs read it.
type modelRow struct {
	Name       string            `json:"name"`
	Default    bool              `json:"default,omitempty"`
	Kind       string            `json:"kind"`
	URL        string            `json:"url,omitempty"`
	URLs       []string          `json:"urls,omitempty"` // of a pool
	ID         string            `json:"id"`
	Key        string            `json:"key,omitempty"`     // the reference
	NoKey      string            `json:"no_key,omitempty"`  // why it stands for none here
	Context    int64             `json:"context,omitempty"` // tokens
	Output     int64             `json:"output,omitempty"`
	Can        []string          `json:"can"`
	SchemaOmit []string          `json:"schema_omit,omitempty"`
	Thinking   *models.Thinking  `json:"thinking,omitempty"`
	Dims       int               `json:"dimensions,omitempty"`
	Cost       string            `json:"cost,omitempty"`
	Prices     *price            `json:"prices,omitempty"`
	Fallbacks  []string          `json:"fallbacks,omitempty"`
	Retries    *retries          `json:"retries,omitempty"`
	Timeouts   *timeouts         `json:"timeouts,omitempty"`
	Failures   []llm.FailureRule `json:"failures,omitempty"`
	Limits     *limits           `json:"limits,omitempty"`
	KeyLimits  *limits           `json:"key_limits,omitempty"`
}

// retries are the list's settings for retries; 0 selects the node's own.
type retries struct {
	Attempts int   `json:"attempts,omitempty"`
	PauseMS  int64 `json:"pause_ms,omitempty"`
	WithinMS int64 `json:"within_ms,omitempty"`
}

func retriesOf(r models.Retries) *retries {
	if r == (models.Retries{}) {
		return nil
	}
	return &retries{r.Attempts, r.Pause.Milliseconds(), r.Within.Milliseconds()}
}

// timeouts are the list's timeouts; 0 selects the default.
type timeouts struct {
	ConnectMS    int64 `json:"connect_ms,omitempty"`
	FirstTokenMS int64 `json:"first_token_ms,omitempty"`
	SilenceMS    int64 `json:"silence_ms,omitempty"`
	WholeMS      int64 `json:"whole_ms,omitempty"`
}

func timeoutsOf(t llm.Timeouts) *timeouts {
	if t == (llm.Timeouts{}) {
		return nil
	}
	return &timeouts{t.Connect.Milliseconds(), t.FirstToken.Milliseconds(), t.Silence.Milliseconds(), t.Whole.Milliseconds()}
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

// cells are the limits in a table.
func (l *limits) cells() []string {
	all := []string{"-", "-", "-"}
	if l != nil {
		for i, n := range []int64{l.Requests, l.Tokens, l.Concurrency} {
			if n > 0 {
				all[i] = strconv.FormatInt(n, 10)
			}
		}
	}
	return all
}

// price is in micro-USD for a million tokens.
type price struct {
	Source      string `json:"source,omitempty"` // list, or public: the table that the program has
	Date        string `json:"date"`
	Input       int64  `json:"input"`
	CachedInput int64  `json:"cached_input"`
	CacheWrite  int64  `json:"cache_write"`
	Output      int64  `json:"output"`
}

func priceOf(p *models.Prices, source string) *price {
	if p == nil {
		return nil
	}
	return &price{source, p.Date, p.Input, p.CachedInput, p.CacheWrite, p.Output}
}

// usd formats an amount of micro-USD, without trailing zeros.
func usd(n int64) string {
	text := fmt.Sprintf("%d.%06d", n/1_000_000, n%1_000_000)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// listed returns the configured list.
func listed(a *app.App) (*models.List, error) {
	name := a.Config.Models.Value
	if name == "" {
		return nil, app.Fail(app.ExitUsage, "there is no list of models: name its file with RATH_MODELS, or as \"models\" in the configuration file; without a list OPENAI_BASE_URL serves the models")
	}
	return models.Read(name)
}

func modelsLs(a *app.App) *cobra.Command {
	var public bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the models for tasks and agents",
		Long: `Lists the models of the list: name, server, key (missing if it does not exist)
and fallbacks. Below it prints the cost of each: the price of a million tokens
in and out in US dollars with its source (the list or the public table, and the
date), or stated by the server, free, or unknown; and the limits of a model or a
key for all nodes together: requests and tokens per minute, and concurrent calls
of a tenant. --format json has the rest. docs/models.md describes the list.
--public lists published prices. Check them before use.`,
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

// rowsOf returns the models of a list, and the limits of keys by their references.
func rowsOf(a *app.App, l *models.List) (all []modelRow, keys map[string]*limits) {
	all, keys = []modelRow{}, map[string]*limits{}
	for _, m := range l.All() {
		source := "list"
		if m.Public {
			source = "public"
		}
		r := modelRow{
			m.Name, m.Name == l.Default, m.Kind, m.URL, m.URLs, m.ID, m.Key, "", m.Context, m.Output, m.Can, m.SchemaOmit, m.Thinking, m.Dimensions,
			m.Cost, priceOf(m.Prices, source), m.Fallbacks, retriesOf(m.Retries), timeoutsOf(m.Timeouts), m.Failures, limitsOf(m.Limit), nil,
		}
		if k, ok := l.KeyLimit(m); ok {
			r.KeyLimits = limitsOf(k.Limit)
			keys[k.Key] = r.KeyLimits
		}
		if _, err := l.Key(a.Getenv, m.Key); m.Key != "" && err != nil {
			r.NoKey = err.Error()
		}
		all = append(all, r)
	}
	return all, keys
}

func listModels(a *app.App, l *models.List) error {
	all, keys := rowsOf(a, l)
	if done, err := app.Emit(a, all); done {
		return err
	}
	var servers, costs [][]string
	for i := range all {
		r := &all[i]
		name := r.Name
		if r.Default {
			name += " *"
		}
		servers = append(servers, []string{term.Line(name, 14), term.Line(r.server(), 20), term.Line(r.ID, 16), r.key(), term.Line(strings.Join(r.Fallbacks, ","), 14)})
		costs = append(costs, slices.Concat([]string{term.Line(r.Name, 14)}, r.cost(), r.Limits.cells()))
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		costs = append(costs, slices.Concat([]string{term.Line(key, 14), "-", "-", "-"}, keys[key].cells()))
	}
	a.Out.Rows([]string{"NAME", "SERVER", "MODEL", "KEY", "FALLBACKS"}, servers)
	a.Out.Printf("\n")
	a.Out.Rows([]string{"NAME", "IN", "OUT", "PRICES", "REQS/MIN", "TOKENS/MIN", "AT ONCE"}, costs)
	for _, r := range all {
		if r.NoKey != "" {
			a.Remark("%s: %s", r.Name, r.NoKey)
		}
	}
	return nil
}

func (r *modelRow) server() string {
	server := r.URL
	if _, rest, ok := strings.Cut(server, "://"); ok {
		server, _, _ = strings.Cut(rest, "/")
	}
	if more := len(r.URLs) - 1; more > 0 {
		return fmt.Sprintf("%s +%d", term.Line(server, 16), more)
	}
	return server
}

func (r *modelRow) key() string {
	switch {
	case r.NoKey != "":
		return "missing"
	case r.Key != "":
		return "there"
	}
	return "-"
}

// cost returns the prices and their source.
func (r *modelRow) cost() []string {
	switch {
	case r.Prices != nil && slices.Contains(r.Can, models.CanEmbed):
		return []string{usd(r.Prices.Input), "vectors", r.Prices.Source + " " + r.Prices.Date}
	case r.Prices != nil:
		return []string{usd(r.Prices.Input), usd(r.Prices.Output), r.Prices.Source + " " + r.Prices.Date}
	case r.Cost == "":
		return []string{"-", "-", "unknown"}
	}
	return []string{"-", "-", r.Cost}
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
		list[i] = row{p.ID, priceOf(&p.Prices, "")}
		rows[i] = []string{p.ID, usd(p.Input), usd(p.CachedInput), usd(p.CacheWrite), usd(p.Output), p.Date}
	}
	if done, err := app.Emit(a, list); done {
		return err
	}
	a.Out.Rows([]string{"MODEL", "IN", "CACHED", "WRITE", "OUT", "AS OF"}, rows)
	a.Remark("US dollars for a million tokens, to be checked with the provider")
	return nil
}

func modelsImport(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Convert the providers of OpenRath's config.json to a list",
		Long: `Converts the providers of OpenRath's configuration file, such as
~/.openrath/config.json, to a list of models on standard output. Keys are not
copied: the list names an environment variable for each. Settings without a
place in the list are reported on standard error.`,
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
