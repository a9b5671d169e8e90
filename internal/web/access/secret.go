package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// prefix begins each token, so that scanners of secrets find one.
	prefix = "rath_"
	// idBytes and secretBytes are the lengths of the two parts of a token. The secret has
	// 5 bits in each byte: 260.
	idBytes, secretBytes = 12, 52
)

// secret is the text of a token or of a cookie, which a gateway reads and never stores:
// rath_<id>_<secret>.
type secret struct{ id, text string }

// newSecret draws a secret.
func newSecret() secret {
	text := strings.ToLower(rand.Text() + rand.Text() + rand.Text())
	return secret{id: text[:idBytes], text: text[idBytes : idBytes+secretBytes]}
}

// String is the token's text.
func (s secret) String() string { return prefix + s.id + "_" + s.text }

// hash is the form in which a secret is stored.
func (s secret) hash() string {
	h := sha256.Sum256([]byte(s.text))
	return hex.EncodeToString(h[:])
}

// is reports, in constant time, whether the secret has a stored hash.
func (s secret) is(hash string) bool {
	return subtle.ConstantTimeCompare([]byte(s.hash()), []byte(hash)) == 1
}

// parseSecret reads the text of a token or a cookie.
func parseSecret(text string) (secret, bool) {
	rest, ok := strings.CutPrefix(text, prefix)
	id, own, two := strings.Cut(rest, "_")
	s := secret{id, own}
	return s, ok && two && len(id) == idBytes && len(own) == secretBytes && plain(id) && plain(own)
}

// plain reports whether a text has only the characters of drawn secrets.
func plain(text string) bool {
	return strings.Trim(text, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// CheckUser refuses a name that the user of a token or of a page session cannot have: a
// name that stands for someone else in evidence, among them the default names of the NATS
// users of a tenant.
func CheckUser(name string, t session.Tenant) error {
	if err := messages.ValidUser(name); err != nil {
		return err
	}
	reserved := name == messages.UserOperator || name == messages.UserAnonymous
	for _, r := range permission.Roles() {
		reserved = reserved || name == string(r) || name == permission.UserOf(r, t)
	}
	if reserved || len(name) > 64 {
		return fmt.Errorf("user %q: %w: that is the name of a NATS user or too long; take another one of at most 64 letters, digits, _ and -", name, run.ErrMalformed)
	}
	return nil
}
