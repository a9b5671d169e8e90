package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/rathcluster/rath/internal/models/listfile"
	"github.com/rathcluster/rath/internal/platform/filelock"
)

// oauth configures how the node gets tokens for a server (OAuth 2.1, as profiled by the
// protocol's specification of 2025-11-25): by the client credentials grant, or from the
// file of a user's Login. The secret is sent only to the entry's authorization server,
// never to one that the MCP server names.
type oauth struct {
	issuer string // the authorization server
	client string // the client's id at the server; "" registers one at Login
	secret string // reference of the client's secret
	scopes []string
	login  string // the file of Login; "" is the grant of client credentials

	mu     sync.Mutex
	source oauth2.TokenSource // of client credentials; nil before the first token
	last   string             // the token that was used last, which errors must not repeat
}

// entry reads the field of a server.
func (o *oauth) entry(p *listfile.Parser, n *yaml.Node, what string) {
	what += ": oauth"
	before := p.Mistakes()
	p.Fields(n, what, map[string]func(*yaml.Node){
		"issuer": func(n *yaml.Node) { o.issuer = address(p, n, what, "issuer") },
		"client": func(n *yaml.Node) { o.client = p.Text(n, what+": client") },
		"secret": func(n *yaml.Node) { o.secret = p.Key(n, what, "secret") },
		"scopes": func(n *yaml.Node) { o.scopes = p.Texts(n, what+": scopes") },
		"login": func(n *yaml.Node) {
			o.login = p.Text(n, what+": login")
			if rest, ok := strings.CutPrefix(o.login, "~/"); ok {
				if dir, err := os.UserHomeDir(); err == nil {
					o.login = filepath.Join(dir, rest)
				}
			} else if !filepath.IsAbs(o.login) {
				o.login = filepath.Join(filepath.Dir(p.File), o.login)
			}
		},
	})
	switch {
	case p.Mistakes() > before:
	case o.login == "" && (o.issuer == "" || o.client == "" || o.secret == ""):
		p.Fail(n.Line, "%s: want issuer, client and secret; or login, the file of \"rath mcp login\"", what)
	case (o.client == "") != (o.issuer == ""):
		p.Fail(n.Line, "%s: issuer and client go together: the authorization server, and the id of this client there", what)
	case o.secret != "" && o.client == "":
		p.Fail(n.Line, "%s: secret is of a client; name that in client", what)
	}
}

// signInClient sends requests to authorization servers. It follows no redirects, because
// the requests contain secrets.
var signInClient = &http.Client{
	Timeout:       answerTime,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// token returns a token for a server, never refused, which the server rejected.
func (o *oauth) token(s *Server, env func(string) string, refused string) (_ string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var t *oauth2.Token
	if o.login != "" {
		t, err = o.signedIn(s, refused)
	} else {
		t, err = o.granted(s, env, refused)
	}
	if err != nil {
		return "", fmt.Errorf("no token by OAuth: %w", err)
	}
	o.last = t.AccessToken
	return t.AccessToken, nil
}

// secrets returns the texts that no error may contain.
func (o *oauth) secrets(s *Server, env func(string) string) (all []string) {
	if secret, err := listfile.Secret(env, s.file, o.secret, "secret"); o.secret != "" && err == nil {
		all = append(all, secret)
	}
	if o.login != "" {
		if l, err := o.read(s); err == nil {
			all = append(all, l.Secret, l.Token.AccessToken, l.Token.RefreshToken)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(append(all, o.last), func(secret string) bool { return secret == "" })
}

// SignIn returns how the node signs in to the server: "client" as a client with a secret,
// "login" with a user's login, "" not at all.
func (s *Server) SignIn() string {
	switch {
	case s.oauth == nil:
		return ""
	case s.oauth.login == "":
		return "client"
	}
	return "login"
}

// granted is a token for the client itself.
func (o *oauth) granted(s *Server, env func(string) string, refused string) (*oauth2.Token, error) {
	if o.source != nil && (refused == "" || refused != o.last) {
		t, err := o.source.Token()
		return t, answered(err)
	}
	// Tokens outlive the request that needs the first one, so ctx must not be the request's.
	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, signInClient)
	secret, err := listfile.Secret(env, s.file, o.secret, "secret")
	if err != nil {
		return nil, err
	}
	endpoint, err := o.endpoint(ctx)
	if err != nil {
		return nil, err
	}
	c := clientcredentials.Config{
		ClientID: o.client, ClientSecret: secret, TokenURL: endpoint, Scopes: o.scopes,
		EndpointParams: map[string][]string{"resource": {s.URL}},
	}
	source := c.TokenSource(ctx)
	t, err := source.Token()
	if err != nil {
		return nil, answered(err)
	}
	o.source = source
	return t, nil
}

// endpoint returns the issuer's token endpoint from its metadata (RFC 8414, or OpenID
// Connect Discovery). The SDK reads only metadata of authorization code servers, which must
// have PKCE.
func (o *oauth) endpoint(ctx context.Context) (string, error) {
	u, err := url.Parse(o.issuer)
	if err != nil {
		return "", err
	}
	path := strings.TrimSuffix(u.Path, "/")
	for _, at := range []string{"/.well-known/oauth-authorization-server" + path, "/.well-known/openid-configuration" + path, path + "/.well-known/openid-configuration"} {
		u.Path = at
		var meta struct {
			Issuer string `json:"issuer"`
			Token  string `json:"token_endpoint"`
		}
		ok, err := getJSON(ctx, u.String(), &meta)
		switch {
		case err != nil:
			return "", fmt.Errorf("metadata of %s: %w", o.issuer, err)
		case !ok:
		case strings.TrimSuffix(meta.Issuer, "/") != strings.TrimSuffix(o.issuer, "/"):
			return "", fmt.Errorf("the metadata of %s are those of %s; correct issuer", o.issuer, clip(meta.Issuer, 200))
		case meta.Token == "":
			return "", fmt.Errorf("the metadata of %s name no token_endpoint", o.issuer)
		default:
			return meta.Token, nil
		}
	}
	return "", fmt.Errorf("%s has no metadata of an authorization server; correct issuer", o.issuer)
}

// maxMetadata bounds the metadata of an authorization server, in bytes.
const maxMetadata = 1 << 20

// getJSON reads a document; ok is false if it does not exist.
func getJSON(ctx context.Context, at string, into any) (ok bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return false, err
	}
	resp, err := signInClient.Do(r)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 400 && resp.StatusCode < 500:
		return false, nil
	case resp.StatusCode != http.StatusOK:
		return false, errors.New(resp.Status)
	}
	return true, json.NewDecoder(io.LimitReader(resp.Body, maxMetadata)).Decode(into)
}

// answered returns an error of an authorization server without parts that may repeat the
// request.
func answered(err error) error {
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return fmt.Errorf("the authorization server answered %s: %s %s", e.Response.Status, clip(e.ErrorCode, 80), clip(e.ErrorDescription, 200))
	}
	return err
}

// login is the contents of a file of Login.
type login struct {
	Server string           `json:"server"`
	Client string           `json:"client"`
	Secret string           `json:"secret,omitempty"`
	URL    string           `json:"token_url"`
	Style  oauth2.AuthStyle `json:"auth_style,omitempty"`
	Token  *oauth2.Token    `json:"token"`
}

// signedIn returns a token of the user who signed in. It reads the file for each request:
// another node of this machine may have refreshed the token, or the user may have signed in
// again.
func (o *oauth) signedIn(s *Server, refused string) (*oauth2.Token, error) {
	l, err := o.read(s)
	if err != nil {
		return nil, err
	}
	if l.Token.Valid() && l.Token.AccessToken != refused {
		return l.Token, nil
	}
	// One node of this machine refreshes the token, and the others read the result: using a
	// refresh token twice may end the login.
	unlock, err := lock(o.login)
	if err != nil {
		return nil, plain(err)
	}
	defer unlock()
	if l, err = o.read(s); err != nil {
		return nil, err
	}
	if l.Token.Valid() && l.Token.AccessToken != refused {
		return l.Token, nil
	}
	again := fmt.Sprintf("sign in with \"rath mcp login %s\"", s.Name)
	if l.Token.RefreshToken == "" {
		return nil, errors.New("the token has ended and the authorization server gave none to refresh it; " + again)
	}
	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, signInClient)
	c := oauth2.Config{ClientID: l.Client, ClientSecret: l.Secret, Endpoint: oauth2.Endpoint{TokenURL: l.URL, AuthStyle: l.Style}}
	err = replace(o.login, func() (*login, error) {
		t, err := c.TokenSource(ctx, &oauth2.Token{RefreshToken: l.Token.RefreshToken}).Token()
		if err != nil {
			return nil, fmt.Errorf("%w; if that stays so, %s", answered(err), again)
		}
		l.Token = t
		return l, nil
	})
	return l.Token, err
}

func (o *oauth) read(s *Server) (*login, error) {
	name := filepath.Base(o.login) // the folder is the operator's affair
	fi, err := os.Stat(o.login)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no user has signed in: run \"rath mcp login %s\"", s.Name)
	}
	if err != nil {
		return nil, plain(err)
	}
	if runtime.GOOS != "windows" && fi.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s holds tokens and others can read it; chmod 600 it", name)
	}
	data, err := os.ReadFile(o.login)
	if err != nil {
		return nil, plain(err)
	}
	var l login
	if err := json.Unmarshal(data, &l); err != nil || l.Token == nil || l.URL == "" {
		return nil, fmt.Errorf("%s is no file of a login; remove it and run \"rath mcp login %s\"", name, s.Name)
	}
	if l.Server != s.URL {
		return nil, fmt.Errorf("%s is the login for %s; run \"rath mcp login %s\"", name, l.Server, s.Name)
	}
	return &l, nil
}

// replace replaces a file atomically. It calls get after it created the temporary file,
// because a refresh token may be valid only once.
func replace(file string, get func() (*login, error)) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".login-*") // 0600
	if err != nil {
		return fmt.Errorf("the tokens cannot be kept: %w; let the node write into the directory of %s", plain(err), filepath.Base(file))
	}
	l, err := get()
	if err == nil {
		err = json.NewEncoder(f).Encode(l)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return plain(err)
	}
	return nil
}

// plain leaves the folder out of an error of a file: clients read it, too.
func plain(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s %s: %w", e.Op, filepath.Base(e.Path), e.Err)
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return fmt.Errorf("%s %s: %w", e.Op, filepath.Base(e.New), e.Err)
	}
	return err
}

// lock waits for the lock of a file. It locks a second file, because the file itself is
// replaced.
func lock(file string) (unlock func(), err error) {
	f, err := os.OpenFile(file+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return func() {}, err
	}
	if err := filelock.Wait(f); err != nil {
		return func() {}, errors.Join(err, f.Close())
	}
	return func() { _ = filelock.Release(f) }, nil
}
