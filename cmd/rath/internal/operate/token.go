package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/web/access"
)

// Token is the command "token".
func Token(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke tokens for the API and the pages",
		Example: `  rath token create --user ana --role approve --expires 720h
  rath token ls
  rath token revoke k3v9q2m7x4ab`,
		Args: app.NoSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(tokenCreate(a), tokenLs(a), tokenRevoke(a))
	return cmd
}

// tokens opens the tokens of the configured system, as the operator.
func tokens(ctx context.Context, a *app.App, fn func(*access.Store) error) (err error) {
	s, err := a.OpenStreams(ctx, app.ToGrant, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return fn(access.NewStore(s.Conn.Streams))
}

func tokenCreate(a *app.App) *cobra.Command {
	var user, role string
	var expires time.Duration
	var only []string
	cmd := &cobra.Command{
		Use:   "create --user NAME --role ROLE",
		Short: "Make a token of a user, and print it once",
		Long: `Makes a token with which a program uses the API, or a person logs in to the
pages, as a user of the tenant with a role: observe, submit, approve, operate or
client. Evidence names the user. The token is printed once; its SHA-256 is
stored.

--only makes a narrow token: it submits these workflows, and it sees only the
runs that its user submitted to them.

It takes the operator's credentials on a server. Over a store it takes none.`,
		Example: `  rath token create --user ana --role approve
  rath token create --user ci --role submit --only review,triage --expires 720h
  curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:7280/api/v1/runs`,
		Args: app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if user == "" || role == "" {
				return app.Usage(cmd, errors.New("name the user and the role, as --user ana --role approve"))
			}
			if expires < 0 {
				return app.Usage(cmd, fmt.Errorf("--expires %v: want a time such as 720h; leave it out for a token without an end", expires))
			}
			e := &access.Entry{Tenant: a.Tenant(), User: user, Role: permission.Role(role), Only: only}
			if expires > 0 {
				e.Expires = time.Now().Add(expires).UnixMilli()
			}
			return tokens(cmd.Context(), a, func(s *access.Store) error {
				text, err := s.CreateToken(cmd.Context(), e)
				if err != nil {
					return err
				}
				e.Hash = ""
				if done, err := app.EmitOne(a, struct {
					*access.Entry
					Token string `json:"token"`
				}{e, text}); done {
					return err
				}
				a.Out.Println(text)
				a.Remark("token %s of user %s, role %s, tenant %s, %s; it is not shown again", e.ID, e.User, e.Role, e.Tenant, ends(e))
				return nil
			})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&user, "user", "", "the user, whom evidence names")
	fs.StringVar(&role, "role", "", "observe, submit, approve, operate or client")
	fs.DurationVar(&expires, "expires", 0, "how long it is good, such as 720h; none is for ever")
	fs.StringSliceVar(&only, "only", nil, "submit and see its user's runs of these workflows")
	return cmd
}

// ends describes the end of a token.
func ends(e *access.Entry) string {
	if e.Expires == 0 {
		return "no expiry"
	}
	return "until " + time.UnixMilli(e.Expires).UTC().Format("2006-01-02 15:04 UTC")
}

func tokenLs(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List the tokens of the tenant",
		Long:    "Lists the tokens of the tenant, oldest first, without their secrets.",
		Example: "  rath token ls\n  rath token ls --tenant acme --format jsonl",
		Args:    app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return tokens(cmd.Context(), a, func(s *access.Store) error {
				all, err := s.Tokens(cmd.Context(), a.Tenant())
				if err != nil {
					return err
				}
				if done, err := app.Emit(a, all); done {
					return err
				}
				if len(all) == 0 {
					a.Remark("tenant %s has no tokens; %q makes one", a.Tenant(), a.Hint("token", "create", "--user", "NAME", "--role", "ROLE"))
					return nil
				}
				rows := make([][]string, len(all))
				for i := range all {
					e := &all[i]
					rows[i] = []string{e.ID, e.User, string(e.Role), strings.Join(e.Only, ","), time.UnixMilli(e.Created).UTC().Format("2006-01-02 15:04"), ends(e)}
				}
				a.Out.Rows([]string{"ID", "USER", "ROLE", "ONLY", "CREATED", "ENDS"}, rows)
				return nil
			})
		},
	}
}

func tokenRevoke(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID...",
		Short: "End tokens, and the page sessions that began with them",
		Long: `Ends tokens by their ids. Within two seconds every router refuses them, and ends
their streams and the page sessions that began with them.`,
		Example: "  rath token revoke k3v9q2m7x4ab",
		Args:    app.Between(1, 64, "ids of tokens"),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return tokens(cmd.Context(), a, func(s *access.Store) error {
				var errs []error
				for _, id := range ids {
					if err := s.RevokeToken(cmd.Context(), id); err != nil {
						errs = append(errs, err)
						continue
					}
					a.Remark("token %s is revoked", id)
				}
				return errors.Join(errs...)
			})
		},
	}
}
