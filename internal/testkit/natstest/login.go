package natstest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nkeys"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// NewKey makes the key of a user who logs in with one: the public part for a server, and
// the file of the seed.
func NewKey(tb testing.TB) (public, file string) {
	tb.Helper()
	pair := must.Get(nkeys.CreateUser())(tb)
	public, err1 := pair.PublicKey()
	seed, err2 := pair.Seed()
	file = filepath.Join(tb.TempDir(), "user.nk")
	must.Do(tb, errors.Join(err1, err2, os.WriteFile(file, seed, 0o600)))
	return public, file
}
