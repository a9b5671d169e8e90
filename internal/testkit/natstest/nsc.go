package natstest

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// NSC is an operator whose accounts and users are JWTs. It executes the printed commands as
// the tool nsc does; any other command fails the test.
type NSC struct {
	tb        testing.TB
	dir       string
	operator  nkeys.KeyPair
	accounts  map[string]*jwt.AccountClaims
	keys      map[string]nkeys.KeyPair // of accounts
	variables map[string]string
}

// NewNSC makes an operator with a system account and no other.
func NewNSC(tb testing.TB) *NSC {
	tb.Helper()
	n := &NSC{tb: tb, dir: tb.TempDir(), accounts: map[string]*jwt.AccountClaims{}, keys: map[string]nkeys.KeyPair{}, variables: map[string]string{}}
	n.operator = must.Get(nkeys.CreateOperator())(tb)
	n.addAccount("SYS")
	return n
}

func (n *NSC) addAccount(name string) {
	n.tb.Helper()
	n.keys[name] = must.Get(nkeys.CreateAccount())(n.tb)
	n.accounts[name] = jwt.NewAccountClaims(must.Get(n.keys[name].PublicKey())(n.tb))
	n.accounts[name].Name = name
}

var (
	shellWord     = regexp.MustCompile(`'[^']*'|[^\s']+`)
	shellVariable = regexp.MustCompile(`^([A-Z]+)=\$\((nsc describe account --name (\S+) --field sub) \| tr -d '"'\)$`)
)

// Run carries out commands, as a shell does with nsc.
func (n *NSC) Run(commands []string) {
	n.tb.Helper()
	for _, c := range commands {
		if m := shellVariable.FindStringSubmatch(c); m != nil {
			n.variables[m[1]] = n.account(m[3]).Subject
			continue
		}
		words := shellWord.FindAllString(strings.ReplaceAll(c, "\\\n", ""), -1)
		for i, w := range words {
			if name, ok := strings.CutPrefix(w, "$"); ok {
				words[i] = n.variables[name]
			}
			words[i] = strings.Trim(words[i], "'")
		}
		if len(words) < 4 || words[0] != "nsc" {
			n.tb.Fatalf("no command of nsc: %s", c)
		}
		if err := n.do(words[1]+" "+words[2], words[3:]); err != nil {
			n.tb.Fatalf("%s: %v", c, err)
		}
	}
}

func (n *NSC) account(name string) *jwt.AccountClaims {
	n.tb.Helper()
	a := n.accounts[name]
	if a == nil {
		n.tb.Fatalf("there is no account %q", name)
	}
	return a
}

func (n *NSC) do(verb string, args []string) error {
	f := flag.NewFlagSet(verb, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	name, in := f.String("name", "", ""), f.String("account", "", "")
	switch verb {
	case "add account":
		if err := f.Parse(args); err != nil {
			return err
		}
		if n.accounts[*name] != nil {
			return errors.New("it is there")
		}
		n.addAccount(*name)
	case "edit account":
		tier := f.Int("js-enable", -1, "")
		if err := f.Parse(args); err != nil || *tier != 0 {
			return fmt.Errorf("tier %d: %w", *tier, err)
		}
		n.account(*name).Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	case "add export":
		e := &jwt.Export{Type: jwt.Stream}
		service, subject, response := f.Bool("service", false, ""), f.String("subject", "", ""), f.String("response-type", "", "")
		if err := f.Parse(args); err != nil {
			return err
		}
		e.Name, e.Subject, e.ResponseType = *subject, jwt.Subject(*subject), jwt.ResponseType(*response)
		if *service {
			e.Type = jwt.Service
		}
		n.account(*in).Exports.Add(e)
	case "add import":
		i := &jwt.Import{Type: jwt.Stream}
		service, subject := f.Bool("service", false, ""), f.String("remote-subject", "", "")
		f.StringVar(&i.Account, "src-account", "", "")
		if err := f.Parse(args); err != nil {
			return err
		}
		if i.Name, i.Subject = *subject, jwt.Subject(*subject); *service {
			i.Type = jwt.Service
		}
		n.account(*in).Imports.Add(i)
	case "add user":
		return n.addUser(f, name, in, args)
	default:
		return errors.New("no such command")
	}
	if n.accounts[*in] == nil {
		return nil
	}
	var invalid jwt.ValidationResults
	n.accounts[*in].Validate(&invalid)
	return errors.Join(invalid.Errors()...)
}

func (n *NSC) addUser(f *flag.FlagSet, name, in *string, args []string) error {
	pair := must.Get(nkeys.CreateUser())(n.tb)
	u := jwt.NewUserClaims(must.Get(pair.PublicKey())(n.tb))
	for flag, list := range map[string]*jwt.StringList{"allow-pub": &u.Pub.Allow, "deny-pub": &u.Pub.Deny, "allow-sub": &u.Sub.Allow} {
		f.Func(flag, "", func(s string) error { list.Add(s); return nil })
	}
	responses, ttl := f.Int("allow-pub-response", 0, ""), f.Duration("response-ttl", time.Duration(0), "")
	if err := f.Parse(args); err != nil {
		return err
	}
	if u.Name = *name; *responses > 0 {
		u.Resp = &jwt.ResponsePermission{MaxMsgs: *responses, Expires: *ttl}
	}
	n.account(*in)
	token, err := u.Encode(n.keys[*in])
	if err != nil {
		return err
	}
	creds, err := jwt.FormatUserConfig(token, must.Get(pair.Seed())(n.tb))
	if err != nil {
		return err
	}
	return os.WriteFile(n.Creds(*name), creds, 0o600)
}

// Creds is the file of a user's credentials.
func (n *NSC) Creds(user string) string { return filepath.Join(n.dir, user+".creds") }

// Config is the part of a server's configuration that names the operator and has all
// accounts.
func (n *NSC) Config() string {
	n.tb.Helper()
	o := jwt.NewOperatorClaims(must.Get(n.operator.PublicKey())(n.tb))
	o.SystemAccount = n.account("SYS").Subject
	var b strings.Builder
	fmt.Fprintf(&b, "operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: {\n", must.Get(o.Encode(n.operator))(n.tb), o.SystemAccount)
	for _, a := range n.accounts {
		fmt.Fprintf(&b, "  %s: %s\n", a.Subject, must.Get(a.Encode(n.operator))(n.tb))
	}
	return b.String() + "}\n"
}
