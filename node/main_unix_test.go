//go:build unix

package node

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rathcluster/rath/cluster"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// TestMainWaitsForServers starts the program without its servers: it waits, is alive,
// and ends well when it is asked to.
func TestMainWaitsForServers(t *testing.T) {
	t.Parallel()
	exe := must.Get(os.Executable())(t)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), exe, "-nats", "nats://127.0.0.1:"+strconv.Itoa(natstest.FreePort(t)),
		"-level", "lazy", "-health", "0", "-drain", "1s", "-store", filepath.Join(dir, "store"))
	cmd.Env = append(os.Environ(), asNode+"=1")
	log := must.Get(cmd.StderrPipe())(t)
	must.Do(t, cmd.Start())
	lines := bufio.NewScanner(log)
	base := ""
	for base == "" && lines.Scan() {
		var l struct{ Msg, URL string }
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Errorf("%v in %s", err, lines.Bytes())
		}
		base = l.URL
	}
	if base == "" {
		t.Fatal("the node does not say where its endpoints are")
	}
	until(t, base, http.StatusServiceUnavailable, starting, "no NATS server reachable")
	must.Do(t, cmd.Process.Signal(syscall.SIGTERM))
	rest := must.Get(io.ReadAll(log))(t)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, rest)
	}
}

// TestMainTellsNoPassword starts the program with the password in the address of its
// servers: it prints their address, and not the password.
func TestMainTellsNoPassword(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	exe := must.Get(os.Executable())(t)
	user, password := srv.Node()
	at := strings.TrimPrefix(srv.URL(), "nats://")
	cmd := exec.CommandContext(t.Context(), exe, "-level", "lazy", "-store", t.TempDir(), "-drain", "1s")
	cmd.Env = append(os.Environ(), asNode+"=1", "NATS_URL=nats://"+user+":"+password+"@"+at)
	log := must.Get(cmd.StderrPipe())(t)
	must.Do(t, cmd.Start())
	said, up := "", false
	for lines := bufio.NewScanner(log); !up && lines.Scan(); {
		said += lines.Text() + "\n"
		up = strings.Contains(lines.Text(), "node is up")
	}
	must.Report(t, cmd.Process.Signal(syscall.SIGTERM))
	rest, err := io.ReadAll(log)
	must.Report(t, err)
	must.Report(t, cmd.Wait())
	said += string(rest)
	if !up || !strings.Contains(said, `"nats":"nats://`+at+`"`) {
		t.Errorf("it does not say where its servers are, %s:\n%s", at, said)
	}
	if !regexp.MustCompile(`(?s)"node is up".*"node stops: .*"node ended"`).MatchString(said) {
		t.Errorf("it does not say that it stops, and that it has ended:\n%s", said)
	}
	if strings.Contains(said, password) {
		t.Errorf("it tells the password %s:\n%s", password, said)
	}
}

// TestMainWithAnotherKey starts the program of a node with another key than the
// fleet's: it ends, and prints the reason and the remedy, and no key.
func TestMainWithAnotherKey(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	at := func() string { return "127.0.0.1:" + strconv.Itoa(natstest.FreePort(t)) }
	first, key := at(), cluster.NewKey()
	member(t, srv, Options{Fleet: Fleet{Gossip: &Gossip{Bind: first, Key: cluster.NewKey().Text()}}})
	keyFile := filepath.Join(t.TempDir(), "key")
	must.Do(t, os.WriteFile(keyFile, []byte(key.Text()), 0o600))
	exe, err := os.Executable()
	must.Do(t, err)
	user, password := srv.Node()
	cmd := exec.CommandContext(t.Context(), exe, "-nats", srv.URL(), "-user", user, "-level", "lazy", "-store", t.TempDir(),
		"-gossip", at(), "-join", first, "-gossip-key-file", keyFile)
	cmd.Env = append(os.Environ(), asNode+"=1", "NATS_PASSWORD="+password)
	said, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); err == nil || code != 5 {
		t.Errorf("it ends with %d, %v", code, err)
	}
	for _, want := range []string{"node: gossip: cluster: join " + first, "the cluster key differs", "give this node the key of the others"} {
		if !strings.Contains(string(said), want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	if strings.Contains(string(said), key.Text()) {
		t.Error("it tells the key")
	}
}
