package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// webService answers each connection with a line.
const webService = `use IO::Socket::INET;
my $l = IO::Socket::INET->new(LocalAddr => "127.0.0.1:8000", Listen => 5, ReuseAddr => 1) or die "cannot listen: $!\n";
while (my $c = $l->accept) { print $c "hello from the service\n"; close $c }
`

const askService = `use IO::Socket::INET;
my $c = IO::Socket::INET->new("127.0.0.1:8000") or die "cannot connect: $!\n";
print <$c>;
`

// TestServiceAfterKill kills the process of a run within a call beside a service. The
// service dies with it; the next process restores the files, starts the service on
// them, and repeats the call.
func TestServiceAfterKill(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	t.Chdir(dir)
	mark := filepath.Base(filepath.Dir(dir)) // of this test's own service
	waits := mark + "-waits"                 // marks the process of the call that sleeps until it is killed
	call := "perl ask.pl >> said && { perl -e 'sleep 1000' " + waits + " || true; }"
	for name, text := range map[string]string{
		"work/web.pl": webService, "work/ask.pl": askService,
		"m.txtar": "Asks the service.\n\n-- ask --\nnot result: run_shell_command\ncall: run_shell_command {\"cmd\":\"" + call + "\"}\n\n-- done --\n\ndone\n",
	} {
		name = filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must.Do(t, os.WriteFile(name, []byte(text), 0o644))
	}
	service := "web=echo up >> starts; exec perl web.pl " + mark
	cmd := startCommand(t, dir, "run", "-C", "work", "--service", service, "--ready", "web=8000", "--script", "m.txtar", "-m", "ask it", "--id", "one")
	waitFor(t, func() bool { return len(running(t, waits)) > 0 })
	if len(running(t, mark)) == 0 {
		t.Fatal("the service does not run beside the call")
	}
	must.Do(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	waitFor(t, func() bool { return len(running(t, mark))+len(running(t, waits)) == 0 })

	resumed := startCommand(t, dir, "resume", "one", "--script", "m.txtar")
	waitFor(t, func() bool { return len(running(t, waits)) > 0 })
	for _, pid := range running(t, waits) {
		must.Do(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	if err := resumed.Wait(); err != nil {
		t.Fatalf("the run does not go on: %v\n%s\nbefore:\n%s", err, resumed.said(), cmd.said())
	}
	for name, want := range map[string]string{"starts": "up\n", "said": "hello from the service\n"} {
		if got := command(t, "rath workspace get one "+name, dir); got != want {
			t.Errorf("%s holds\n%s\nwant\n%s", name, got, want)
		}
	}
	if left := running(t, mark); len(left) > 0 {
		t.Errorf("after the run the service still runs: %v", left)
	}
}

// running returns the processes of a perl that has a word among its arguments.
func running(t *testing.T, word string) (found []int) {
	t.Helper()
	names := must.Get(filepath.Glob("/proc/[0-9]*/cmdline"))(t)
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil || !bytes.HasPrefix(data, []byte("perl\x00")) || !bytes.Contains(data, []byte("\x00"+word+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			found = append(found, pid)
		}
	}
	return found
}
