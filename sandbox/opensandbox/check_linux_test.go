package opensandbox

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestCheck: each problem of a server is reported with its cause and a remedy.
func TestCheck(t *testing.T) {
	s := newServer(t)
	for name, tc := range map[string]struct {
		change func(*driver)
		want   []string
	}{
		"as it should be": {func(*driver) {}, nil},
		"no file of the key": {
			func(b *driver) { b.api.keyFile = filepath.Join(t.TempDir(), "none") },
			[]string{"the API key", "no such file", "opensandbox_key"},
		},
		"another key": {
			func(b *driver) { writeKey(t, b, "wrong") },
			[]string{"401", "put a valid key of the server into"},
		},
		"another path": {
			func(b *driver) { b.api.base = b.api.base.JoinPath("v2") },
			[]string{"404", "most often ends with /v1"},
		},
		"no server": {
			func(b *driver) { b.api.base.Host = "127.0.0.1:1" },
			[]string{"127.0.0.1:1", "refused", "check the server at this address"},
		},
		"no digest": {
			func(b *driver) { b.o.Image = "debian" },
			[]string{"debian", "@sha256:DIGEST"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := s.backend(t)
			tc.change(b)
			found, err := b.check(t.Context())
			if tc.want == nil {
				if err != nil || !strings.Contains(found, "accepts the key") {
					t.Errorf("found %q, %v", found, err)
				}
				return
			}
			for _, w := range tc.want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("%v, want %q in it", err, w)
				}
			}
		})
	}
	s.faulty(func(w http.ResponseWriter, _ *http.Request, _ func()) bool {
		s.refuse(w, http.StatusInternalServerError, "BROKEN", "no database")
		return true
	})
	if _, err := s.backend(t).check(t.Context()); err == nil || !strings.Contains(err.Error(), "no database") || !strings.Contains(err.Error(), "server's log") {
		t.Errorf("a broken server: %v", err)
	}
	if made, _, _ := s.count(); made > 0 {
		t.Errorf("%d sandboxes were made", made)
	}
}

func writeKey(t *testing.T, b *driver, key string) {
	t.Helper()
	must.Do(t, os.WriteFile(b.api.keyFile, []byte(key), 0o600))
}
