//go:build unix

package node

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestBoundNodeIsKilled kills the process of a bound node, with kill -9, in the middle
// of a run of its tenant: another node that is bound to the tenant continues at the
// first step that is not recorded, and a node for all tenants with free slots does not
// get the run.
func TestBoundNodeIsKilled(t *testing.T) {
	t.Parallel()
	srv, _ := tenants(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*soon)
	defer cancel()
	member(t, srv, Options{Fleet: Fleet{Pool: "shared"}})
	member(t, srv, Options{Fleet: Fleet{Routing: RouteOnly}})
	ann := clientOf(t, srv, "acme", "ann")
	exe, err := os.Executable()
	must.Do(t, err)
	file := filepath.Join(t.TempDir(), "held")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	start := func() *exec.Cmd {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), exe, "-nats", srv.URL(), "-user", "host-acme", "-store", t.TempDir(), "-drain", "1s")
		cmd.Env = append(os.Environ(), asNode+"=bound", "NATS_PASSWORD=host", heldBy+"="+file)
		log, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		must.Do(t, err)
		up := make(chan string, 1)
		go func() {
			var said strings.Builder
			for b := make([]byte, 4<<10); ; {
				n, err := log.Read(b)
				said.Write(b[:n])
				if strings.Contains(said.String(), "node is up") || err != nil {
					up <- said.String()
					_, _ = io.Copy(io.Discard, log)
					return
				}
			}
		}()
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // if it lives
			_ = cmd.Wait()
		})
		if said := <-up; !strings.Contains(said, "node is up") {
			t.Fatalf("the node does not start:\n%s", said)
		}
		return cmd
	}
	first := start()
	must.Get(ann.Submit(ctx, "held", messages.Task{ID: "one"}))(t)
	for {
		live, err := ann.Runs.Live(ctx, "one")
		if err == nil && len(live.Steps) > 0 && live.Steps[0].Name == "last" {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("the run does not come to its last step: %+v, %v", live, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	second := start()
	must.Do(t, first.Process.Kill())
	must.Do(t, os.Remove(file))
	began := time.Now()
	r, err := ann.Wait(ctx, "one")
	if want := fmt.Sprintf("%d %d", first.Process.Pid, second.Process.Pid); err != nil || r.State != run.Succeeded || r.Output != want {
		t.Errorf("the run: %+v, %v; want the output %s", r, err, want)
	}
	t.Logf("it ended %v after the kill", time.Since(began).Round(time.Millisecond))
}
