package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/rathcluster/rath/internal/models/listfile"
)

// Login signs a user in to the server, by an authorization code with PKCE. show gets the
// address that the user opens in a browser of this machine. Login waits until the browser
// returns or ctx is done, and writes the tokens to the file that the entry names as login,
// readable only by its owner. env looks up variables of the node.
func (s *Server) Login(ctx context.Context, env func(string) string, show func(url string)) error {
	if s.oauth == nil || s.oauth.login == "" {
		return fmt.Errorf("MCP server %s has no login: write \"oauth: {login: FILE}\" into its entry in %s", s.Name, s.file)
	}
	unlock := func() {}
	defer func() { unlock() }()
	err := replace(s.oauth.login, func() (l *login, err error) {
		if l, err = s.signIn(ctx, env, show); err == nil {
			unlock, err = lock(s.oauth.login) // no older token is written after it
		}
		return l, err
	})
	if err != nil {
		return fmt.Errorf("sign in to MCP server %s: %s", s.Name, clip(s.redact(env, err.Error()), 400))
	}
	return nil
}

func (s *Server) signIn(ctx context.Context, env func(string) string, show func(url string)) (*login, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	back := make(chan *auth.AuthorizationResult, 1)
	refused := make(chan error, 1)
	srv := &http.Server{Handler: callback(back, refused), ReadHeaderTimeout: answerTime}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	defer func() {
		_ = srv.Close()
		<-served
	}()

	l := &login{Server: s.URL}
	c := auth.AuthorizationCodeHandlerConfig{
		RedirectURL: "http://" + listener.Addr().String() + "/", RequestRefreshToken: true, Client: signInClient,
		AuthorizationCodeFetcher: func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			show(args.URL)
			select {
			case r := <-back:
				return r, nil
			case err := <-refused:
				return nil, err
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		},
		NewTokenSource: func(ctx context.Context, c *oauth2.Config, t *oauth2.Token) (oauth2.TokenSource, error) {
			l.Client, l.Secret, l.URL, l.Style, l.Token = c.ClientID, c.ClientSecret, c.Endpoint.TokenURL, c.Endpoint.AuthStyle, t
			return c.TokenSource(ctx, t), nil
		},
	}
	if s.oauth.scopes != nil {
		c.ScopeFilter = func([]string) []string { return s.oauth.scopes }
	}
	if s.oauth.client != "" {
		c.PreregisteredClient = &oauthex.ClientCredentials{ClientID: s.oauth.client, Issuer: s.oauth.issuer}
		if s.oauth.secret != "" {
			secret, err := listfile.Secret(env, s.file, s.oauth.secret, "secret")
			if err != nil {
				return nil, err
			}
			c.PreregisteredClient.ClientSecretAuth = &oauthex.ClientSecretAuth{ClientSecret: secret}
		}
	} else {
		c.DynamicClientRegistrationConfig = &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			ClientName: "Rath", RedirectURIs: []string{c.RedirectURL}, TokenEndpointAuthMethod: "none",
			GrantTypes: []string{"authorization_code", "refresh_token"}, ResponseTypes: []string{"code"},
		}}
	}
	handler, err := auth.NewAuthorizationCodeHandler(&c)
	if err != nil {
		return nil, err
	}
	cs, err := sdk.NewClient(&sdk.Implementation{Name: "rath", Version: "1"}, nil).Connect(ctx, &sdk.StreamableClientTransport{
		Endpoint: s.URL, HTTPClient: &http.Client{Transport: whole{}, CheckRedirect: sameHost},
		MaxRetries: -1, DisableStandaloneSSE: true, MaxEventSize: maxLine, OAuthHandler: handler,
	}, nil)
	if err != nil {
		return nil, err
	}
	_ = cs.Close() // it was connected: the tokens are good
	if l.Token == nil {
		return nil, errors.New("it needs no sign-in; remove oauth from its entry")
	}
	return l, nil
}

// callback serves the address to which the browser returns.
func callback(back chan<- *auth.AuthorizationResult, refused chan<- error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		q := r.URL.Query()
		switch {
		case r.URL.Path != "/":
			http.NotFound(w, r)
		case q.Get("error") != "":
			_, _ = fmt.Fprintln(w, "The sign-in was rejected. The terminal has the reason; you can close this window.")
			select {
			case refused <- fmt.Errorf("the authorization server rejected the request: %s", clip(cmp.Or(q.Get("error_description"), q.Get("error")), 300)):
			default: // the first answer holds
			}
		case q.Get("code") != "":
			_, _ = fmt.Fprintln(w, "Signed in. This window can be closed.")
			select {
			case back <- &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}:
			default:
			}
		default:
			http.Error(w, "There is neither a code nor an error in this address.", http.StatusBadRequest)
		}
	})
}
