//go:build unix

package node

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// TestMainBeforeServers starts a node and a router, without health endpoints, before
// their NATS server listens, as after a power cut of all machines: each logs the reason
// of its wait, in few lines, and is up once the server is there.
func TestMainBeforeServers(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"node", "router"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			port := natstest.FreePort(t)
			exe := must.Get(os.Executable())(t)
			cmd := exec.CommandContext(t.Context(), exe, "-nats", "nats://127.0.0.1:"+strconv.Itoa(port), "-user", "node",
				"-level", "lazy", "-drain", "1s", "-store", t.TempDir())
			cmd.Env = append(os.Environ(), asNode+"="+program, "NATS_PASSWORD=secret")
			log := must.Get(cmd.StderrPipe())(t)
			must.Do(t, cmd.Start())
			said := make(chan string, 1<<10)
			go func() {
				defer close(said)
				for lines := bufio.NewScanner(log); lines.Scan(); {
					said <- lines.Text()
				}
			}()
			waits := 0
			hear := func(limit time.Duration, text string) bool {
				for end := time.After(limit); ; {
					select {
					case line, ok := <-said:
						var l struct{ Msg string }
						if ok && json.Unmarshal([]byte(line), &l) != nil || !ok {
							t.Fatalf("it ends, or says %q; %v", line, ok)
						}
						if l.Msg == "waiting for the NATS servers" {
							waits++
						}
						if strings.Contains(line, text) {
							return true
						}
					case <-end:
						return false
					}
				}
			}
			if !hear(soon, "no NATS server reachable") {
				t.Fatal("it does not say what it waits for")
			}
			hear(2*time.Second, "node is up") // it tries some times
			if waits != 1 {
				t.Errorf("it says %d times that it waits for the same, want once in some seconds", waits)
			}
			natstest.Start(t, &natsserver.Options{Port: port, NodePassword: "secret"})
			if !hear(soon, "node is up") {
				t.Fatal("it does not go on when the server is there")
			}
			must.Report(t, cmd.Process.Signal(os.Interrupt))
			for range said {
			}
			must.Report(t, cmd.Wait())
		})
	}
}

// TestMainWithWrongPassword checks that the program waits only for errors that can
// pass: credentials that the servers reject end it at once.
func TestMainWithWrongPassword(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, &natsserver.Options{Port: -1, NodePassword: "secret"})
	exe, err := os.Executable()
	must.Do(t, err)
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), exe, "-nats", srv.URL(), "-user", "node", "-level", "lazy", "-store", t.TempDir())
	cmd.Env = append(os.Environ(), asNode+"=node", "NATS_PASSWORD=wrong")
	cmd.Stderr = &said
	err = cmd.Run()
	if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != 5 || !strings.Contains(said.String(), "NATS rejected the credentials") {
		t.Errorf("it ends with %v and says %s", err, said.String())
	}
}
