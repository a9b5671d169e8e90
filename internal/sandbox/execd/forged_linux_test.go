package execd

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
)

// TestForgedMessages sends messages of others than the holder to a daemon. In a container
// the socket's directory and the user of commands prevent that; this test checks the
// daemon's own answers.
func TestForgedMessages(t *testing.T) {
	dir, err := os.MkdirTemp("", "rath-daemon-") // the name of a socket must be short
	must.Do(t, err)
	defer os.RemoveAll(dir)
	d := &server{socketDir: dir, state: filepath.Join(dir, "state"), workspace: t.TempDir(), oomKills: func() int { return 0 }}
	ended := make(chan error, 1)
	go func() { ended <- d.serve(time.Minute) }()
	c, err := Dial(t.Context(), dir, time.Minute)
	must.Do(t, err)
	must.Get(c.Open(t.Context(), Opening{}))(t)
	defer func() {
		err := errors.Join(c.Close(), d.box.Close())
		if <-ended; err != nil {
			t.Error(err)
		}
	}()
	// say sends bytes on a connection of its own and returns the answer.
	say := func(text string) string {
		conn, err := net.Dial("unix", filepath.Join(dir, socket))
		must.Do(t, err)
		defer conn.Close()
		must.Do(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
		// The daemon may close the connection before it has read all bytes.
		_, _ = io.WriteString(conn, text)
		answer, err := io.ReadAll(conn)
		if err != nil && !errors.Is(err, syscall.ECONNRESET) {
			return err.Error()
		}
		if len(answer) > 0 {
			return string(answer)
		}
		return "the connection is closed"
	}
	frame := func(kind byte, payload string) string {
		n := len(payload)
		return string([]byte{kind, byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}) + payload
	}
	forged := []struct{ input, text string }{
		{"daemon: hold a sandbox that is held", frame(kindHold, `{"Version":1,"Lease":1000000000}`)},
		{"daemon: open a sandbox without holding it", frame(kindOpen, `{"UID":0}`)},
		{"daemon: claim to be a command that ended", frame(kindResult, `{"Exit":{"Ended":"exited"}}`)},
		{"daemon: announce 4 GiB", "\x05\xff\xff\xff\xff"},
		{"daemon: send bytes that are no message", "\x05\x05\x00\x00\x00{{{{{"},
	}
	for _, f := range forged {
		sandboxtest.End(t, f.input, say(f.text))
	}
	if os.Geteuid() == 0 {
		// As a command, that is, as the commands' user. The thread changes its user and
		// ends.
		d.mu.Lock()
		d.uid = 54321
		d.mu.Unlock()
		must.Do(t, os.Chmod(dir, 0o755))
		answer := make(chan string)
		go func() {
			runtime.LockOSThread()
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 54321, 54321, 54321); errno != 0 {
				answer <- errno.Error()
				return
			}
			answer <- say(frame(kindRun, `{"Argv":["aWQ="]}`))
		}()
		sandboxtest.End(t, "daemon: run a command as the user of commands", <-answer)
		d.mu.Lock()
		d.uid = 0
		d.mu.Unlock()
	}
	e, err := c.Exec(t.Context(), sandbox.Cmd{Argv: []string{"echo", "still", "held"}})
	if err != nil || strings.TrimSpace(string(e.Stdout.Bytes())) != "still held" {
		t.Errorf("after that the holder gets %v, %q", err, e.Stdout.Bytes())
	}
}
