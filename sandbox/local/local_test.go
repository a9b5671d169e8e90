package local_test

import (
	"os"
	"testing"

	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
)

func TestMain(m *testing.M) {
	local.Reexec()
	os.Exit(m.Run())
}

func TestThin(t *testing.T) {
	b := local.New(&local.Options{State: t.TempDir()})
	c, err := b.Probe(t.Context())
	t.Log(c, err)
	s, err := b.Open(t.Context(), sandbox.Spec{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"echo", "hi"}, {"sh", "-c", "ulimit -n; ulimit -c; env; pwd; id; exit 3"}, {"nosuch"}, {"cat", "/etc/shadow"}, {"ls", "/root"},
		{"sh", "-c", "echo x > f && cat f && ln f g; mount -t tmpfs x /tmp; unshare -U true; cat /proc/1/cmdline; ls -la /proc/self/fd"},
		{"sh", "-c", "kill -9 -1; kill -9 $PPID; echo $?; setsid sleep 100 & sleep 0.01; kill -9 $$"},
	} {
		e, err := s.Exec(t.Context(), sandbox.Cmd{Argv: argv})
		t.Logf("%v: %v %d %s %v\n%s%s", argv, err, e.Code, e.Ended, e.Elapsed, e.Stdout.Bytes(), e.Stderr.Bytes())
	}
	t.Log(s.Close())
}
