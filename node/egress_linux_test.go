package node

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/sandbox/egress"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// lines is a log that may be written while it is read: connections log their end after
// Close of the node.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestSecretStaysOutside: a command of a run uses a secret of the node against a host
// that its task lists. The server gets the secret, and no file, environment, log,
// stream or answer holds it; each request is listed with its step.
func TestSecretStaysOutside(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-token-of-the-node"
	var got atomic.Pointer[string]
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Store(new(r.Header.Get("Authorization")))
		fmt.Fprintf(w, "you are %s", r.Header.Get("Authorization"))
	}))
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())

	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", filepath.Join(dir, "fetch"), "./testdata/fetch")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var log lines
	store := t.TempDir()
	n, err := Start(t.Context(), &Options{
		Store: store, NATS: NATS{Level: "lazy", Port: -1}, Models: Models{Source: scriptOf(t, "fetch.txtar", nil)}, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Sandbox: Sandbox{Secrets: "example.com Authorization: Bearer ${TOKEN}", Network: "list:*.com,example.com,elsewhere.net", Private: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		Env:     func(name string) string { return map[string]string{"TOKEN": secret}[name] },
		world: egress.Options{
			Roots: roots,
			Lookup: func(context.Context, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			},
			Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
			},
		},
	})
	must.Do(t, err)
	closed := false
	defer func() {
		if !closed {
			n.Close()
		}
	}()
	c, err := n.Client(t.Context())
	must.Do(t, err)
	defer c.Close()
	blobs := n.Blobs(session.DefaultTenant)
	head, err := workspace.Snapshot(t.Context(), blobs, dir, blob.Digest{}, workspace.Limits{})
	must.Do(t, err)
	ask := messages.Task{
		ID: "one", Input: []byte(`"ask"`), Model: "scripted", Workspace: head.String(), Sandbox: messages.Sandbox{Network: "list:Example.com"},
	}
	must.Get(c.Submit(t.Context(), "agent", ask))(t)
	result, err := c.Wait(t.Context(), "one")
	if err != nil || result.State != run.Succeeded {
		t.Fatalf("the run %s %s: %v", result.State, result.Error, err)
	}
	if got := got.Load(); got == nil || *got != "Bearer "+secret {
		t.Fatalf("the server got %v", got)
	}

	// The run's records, searched as a person would.
	s, err := c.Sessions.Get(t.Context(), string(result.Session))
	must.Do(t, err)
	if want := "list:example.com"; s.Placement.Network != want || s.Placement.Isolation == "" {
		t.Errorf("the session works at %+v, want network %s", s.Placement, want)
	}
	left := t.TempDir()
	files := filepath.Join(left, "files")
	must.Do(t, workspace.Restore(t.Context(), blobs, s.Placement.Head, files))
	answers, err := os.ReadFile(filepath.Join(files, "answers"))
	if err != nil || !strings.Contains(string(answers), "200 you are Bearer "+strings.Repeat("*", len(secret))) {
		t.Errorf("the command got %q, %v", answers, err)
	}
	var commits bytes.Buffer
	var requests []journal.NetworkRequest
	key := session.Key{Tenant: session.DefaultTenant, ID: result.Session}
	for e, err := range n.Log().Read(t.Context(), key, commitlog.Position{}) {
		must.Do(t, err)
		for _, ev := range e.Commit.Events {
			commits.WriteString(ev.Data)
			if ev.Kind == journal.KindStepCompleted {
				d := must.Get(journal.Decode[journal.StepCompleted](ev))(t)
				if requests = append(requests, d.Requests...); len(d.Requests) > 0 && d.Effect != "non_idempotent" {
					t.Errorf("a call with a network is %s", d.Effect)
				}
			}
		}
	}
	if len(requests) != 3 || requests[0].Status != 200 || requests[0].Path != "/echo" || requests[0].Received == 0 || requests[1].Refused == "" || requests[2].Refused == "" {
		t.Errorf("told of the requests: %+v", requests)
	}
	must.Do(t, os.WriteFile(filepath.Join(left, "commits"), commits.Bytes(), 0o600))
	closed = true
	must.Do(t, n.Close())
	if strings.Contains(log.String(), secret) {
		t.Error("the log of the node holds the secret")
	}
	for _, root := range []string{store, left} {
		must.Do(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if bytes.Contains(data, []byte(secret)) {
				t.Errorf("%s holds the secret", path)
			}
			return err
		}))
	}
	if _, err := sandbox.ParseNetwork(s.Placement.Network); err != nil {
		t.Error(err)
	}
}
