package start

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/session"
)

// openWithin bounds the request for a login code.
const openWithin = 10 * time.Second

// Open is the command "open".
func Open(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "open [RUN | questions]",
		Short: "Print an address that logs a browser in to the pages of \"rath dev\"",
		Long: `Prints the address of the pages of the "rath dev" over this store, with a new
login code. The code is good for ten minutes and for one login. With a run or
"questions" the browser lands there.`,
		Example: `  rath open
  rath open 7f3a
  xdg-open "$(rath open questions)"`,
		Args: app.AtMost(1, "one run or the word questions"),
		RunE: func(cmd *cobra.Command, args []string) error {
			next := ""
			if len(args) == 1 {
				next = "/t/" + string(a.Tenant()) + "/" + args[0]
				if args[0] != "questions" {
					if err := session.ValidID("run", args[0]); err != nil {
						return app.Usage(cmd, err)
					}
					next = "/t/" + string(a.Tenant()) + "/runs/" + args[0]
				}
			}
			at, err := loginURL(cmd.Context(), a, next)
			if err != nil {
				return err
			}
			if done, err := app.EmitOne(a, struct {
				URL string `json:"url"`
			}{at}); done {
				return err
			}
			a.Out.Println(at)
			return nil
		},
	}
}

// loginURL asks the `rath dev` over the store for a login code.
func loginURL(ctx context.Context, a *app.App, next string) (string, error) {
	if a.Ambient() {
		return "", app.Fail(app.ExitUsage, "open is for the pages of %q over a store; on a server log in at the address of its routers, with a token or with the identity provider", a.Hint("dev"))
	}
	at, err := supervise.ReadAttachment(a.Config.Store.Value)
	if err != nil {
		return "", fmt.Errorf("%w; start %q there", err, a.Hint("dev"))
	}
	if at.HTTP == "" {
		return "", app.Fail(app.ExitUnavailable, "what runs over %s serves no pages; start %q there", a.Config.Store.Value, a.Hint("dev"))
	}
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.HTTPLocal+"/login/code", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+at.Opener)
	if u, err := url.Parse(at.HTTP); err == nil {
		req.Host = u.Host
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", app.Fail(app.ExitUnavailable, "the pages at %s do not answer: %w; look whether %q still runs", at.HTTP, err, a.Hint("dev"))
	}
	defer res.Body.Close()
	var answer struct{ Code string }
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<10)).Decode(&answer); err != nil || answer.Code == "" {
		return "", app.Fail(app.ExitUnavailable, "the pages at %s gave no login code (%s); start %q again", at.HTTP, res.Status, a.Hint("dev"))
	}
	query := ""
	if next != "" {
		query = "?next=" + url.QueryEscape(next)
	}
	return at.HTTP + "/login" + query + "#" + answer.Code, nil
}
