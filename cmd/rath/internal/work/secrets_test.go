package work

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/workspace"
)

// TestSecretsIn: a copy of files whose names suggest secrets causes a remark.
func TestSecretsIn(t *testing.T) {
	for name, want := range map[string]bool{
		".env": true, "deploy/.env.production": true, "prod.env": true, "keys/id_ed25519": true, ".npmrc": true, "tls/server.KEY": true, "home/.aws/credentials": true,
		".env.example": false, "env": false, "environment.go": false, "id_ed25519.pub": false, "keyboard": false, "docs/credentials": false,
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, filepath.FromSlash(name))
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must.Do(t, os.WriteFile(file, []byte("x"), 0o600))
		b := blob.NewMemory()
		in := must.Get(workspace.Import(t.Context(), b, dir, nil))(t)
		var stderr bytes.Buffer
		a := app.New("rath", strings.NewReader(""), &bytes.Buffer{}, &stderr, func(string) string { return "" })
		must.Do(t, secretsIn(t.Context(), a, b, dir, in.Head))
		if got := strings.Contains(stderr.String(), name); got != want {
			t.Errorf("%s: %q", name, stderr.String())
		}
	}
}
