package egress

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
)

// Secret is a header that the proxy adds to the requests for a host.
type Secret struct {
	Tenant session.Tenant // the tenant whose runs use it; "" is every tenant
	Host   string         // as in a list of hosts, without a pattern
	Header string
	Value  string
	hidden []string // the parts of Value that are secret
}

// Hidden returns the parts of the header's value that are secret.
func (s *Secret) Hidden() []string { return slices.Clone(s.hidden) }

// MinSecret is the minimum length of a secret in bytes. A shorter one would match the
// answers of a server by chance.
const MinSecret = 8

// ParseSecrets parses secrets, one per line:
//
//	[TENANT@]HOST HEADER: VALUE
//
// ${NAME} in a value is replaced by getenv's value of NAME, which is the text to keep
// secret. A value without ${NAME} is rejected, because secrets do not belong in a
// configuration.
func ParseSecrets(text string, getenv func(string) string) ([]Secret, error) {
	var all []Secret
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		s, err := parseSecret(line, getenv)
		if err != nil {
			// The line itself may contain a secret.
			return nil, fmt.Errorf("secret %d: %w; write [TENANT@]HOST HEADER: VALUE, such as api.github.com Authorization: Bearer ${GITHUB_TOKEN}", len(all)+1, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// nameChars are the characters of a header's name.
const nameChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

func parseSecret(line string, getenv func(string) string) (Secret, error) {
	var s Secret
	where, rest, ok := strings.Cut(line, " ")
	name, value, colon := strings.Cut(rest, ":")
	if !ok || !colon {
		return s, errors.New("it has no header")
	}
	if tenant, host, ok := strings.Cut(where, "@"); ok {
		if err := session.ValidID("tenant", tenant); err != nil {
			return s, err
		}
		s.Tenant, where = session.Tenant(tenant), host
	}
	n, err := sandbox.ParseNetwork(sandbox.NetworkList + ":" + where)
	if err != nil || len(n.Hosts()) != 1 || strings.HasPrefix(n.Hosts()[0], "*") {
		return s, errors.New("it names no single host")
	}
	s.Host, s.Header = n.Hosts()[0], http.CanonicalHeaderKey(strings.TrimSpace(name))
	if s.Header == "" || strings.ContainsFunc(s.Header, func(r rune) bool { return !strings.ContainsRune(nameChars, r) }) {
		return s, errors.New("the name of its header is none")
	}
	missing := ""
	s.Value = os.Expand(strings.TrimSpace(value), func(name string) string {
		v := getenv(name)
		if len(v) < MinSecret && missing == "" {
			missing = name
		}
		s.hidden = append(s.hidden, v)
		return v
	})
	switch {
	case missing != "":
		return s, fmt.Errorf("the variable %s is not set, or shorter than %d bytes", missing, MinSecret)
	case len(s.hidden) == 0:
		return s, errors.New("its value names no variable, ${NAME}")
	case strings.ContainsFunc(s.Value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return s, errors.New("its value fits in no header")
	}
	return s, nil
}

// of returns the secrets for a tenant's requests to a host.
func of(all []Secret, t session.Tenant, host string) []Secret {
	return slices.DeleteFunc(slices.Clone(all), func(s Secret) bool { return s.Host != host || s.Tenant != "" && s.Tenant != t })
}
