package local

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// TestUser: commands run as the user of the options, with any network, if this process may
// set that user; otherwise as its own user.
func TestUser(t *testing.T) {
	o := Options{State: filepath.Join(t.TempDir(), "state")}
	must.Do(t, errors.Join(os.Mkdir(o.State, 0o711), os.Chmod(filepath.Dir(filepath.Dir(o.State)), 0o755)))
	want := fmt.Sprintf("%d %d\n", os.Geteuid(), os.Getegid())
	if os.Geteuid() == 0 {
		o.UID, o.GID = 12345, 54321
		want = "12345 54321\n"
	}
	b := newDriver(&o)
	can := must.Get(b.Probe(t.Context()))(t)
	specs := map[string]sandbox.Spec{"no network": {}}
	if can.Services {
		specs["services"] = sandbox.Spec{Services: true}
		specs["a list of hosts"] = sandbox.Spec{Network: "list:example.org", Proxy: func(c net.Conn) { c.Close() }, Authority: []byte("an authority\n")}
	}
	for name, spec := range specs {
		t.Run(name, func(t *testing.T) {
			spec.Dir, spec.MinIsolation = t.TempDir(), can.Isolation
			if o.UID != 0 {
				must.Do(t, errors.Join(os.Chmod(filepath.Dir(spec.Dir), 0o755), os.Chown(spec.Dir, o.UID, o.GID)))
			}
			s := must.Get(b.Open(t.Context(), spec))(t)
			defer s.Close()
			for range 2 { // the second one uses the supervisor of the first
				e, err := s.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", `echo "$(id -u) $(id -g)" && touch f "$TMPDIR/f"`}})
				if err != nil || e.Code != 0 || string(e.Stdout.Head) != want {
					t.Errorf("%v, code %d, %q, want %q; %s", err, e.Code, e.Stdout.Head, want, e.Stderr.Head)
				}
			}
		})
	}
}
