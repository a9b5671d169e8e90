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
	"strconv"
	"syscall"
	"testing"

	"github.com/rathcluster/rath/internal/natstest"
)

// TestMainWaitsForServers starts the program without its servers: it waits, is
// alive, and ends well when it is told to.
func TestMainWaitsForServers(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), exe, "-nats", "nats://127.0.0.1:"+strconv.Itoa(natstest.FreePort(t)),
		"-level", "lazy", "-health", "0", "-drain", "1s", "-store", filepath.Join(dir, "store"))
	cmd.Env = append(os.Environ(), asNode+"=1")
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(log)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, rest)
	}
}
