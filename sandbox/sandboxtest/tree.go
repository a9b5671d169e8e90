package sandboxtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/sandbox"
)

// short is a timeout that a test waits for.
const short = 150 * time.Millisecond

// ends runs a command that would go on for minutes and checks that it is cut
// off long before.
func (b *box) ends(ctx context.Context, c sandbox.Cmd, end sandbox.End) sandbox.Exit {
	b.t.Helper()
	began := time.Now()
	e, err := b.Exec(ctx, c)
	if err != nil {
		b.t.Fatalf("Exec %q: %v", c.Argv, err)
	}
	if e.Ended != end || e.Code == 0 || time.Since(began) > patience {
		b.t.Errorf("%q: %s\nwant ended %q", c.Argv, describe(e), end)
	}
	return e
}

func testDeadline(t *testing.T, s *suite) {
	const deadline = 2 * time.Second // in which each of them begins, on a slow machine too
	b := s.open(t)
	var wg sync.WaitGroup
	for _, script := range []string{
		"sleep 100",
		"trap '' TERM INT HUP QUIT; while :; do sleep 100; done",
		"kill -STOP $$; sleep 100",
		"sleep 100 & sleep 100",
		"while :; do :; done",
	} {
		// At one time, as each of them takes its whole timeout.
		wg.Go(func() {
			e, err := b.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo began; " + script}, Timeout: deadline})
			if err != nil || e.Ended != sandbox.Deadline || e.Code == 0 || e.Elapsed < deadline || e.Elapsed > patience || string(e.Stdout.Bytes()) != "began\n" {
				t.Errorf("%s: %v, %s", script, err, describe(e))
			}
		})
	}
	wg.Wait()
}

func testCancel(t *testing.T, s *suite) {
	b := s.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// The command itself says when to cancel.
	e := b.ends(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "echo began; sleep 100"}, Timeout: 10 * patience, Offload: callback(cancel)}, sandbox.Cancelled)
	if string(e.Stdout.Bytes()) != "began\n" {
		t.Error(describe(e))
	}
	ctx, cancel = context.WithTimeout(t.Context(), short)
	defer cancel()
	b.ends(ctx, sandbox.Cmd{Argv: []string{"sleep", "100"}, Timeout: 10 * patience}, sandbox.Cancelled)
}

// callback calls itself at the first output.
type callback func()

func (c callback) Write(p []byte) (int, error) {
	c()
	return len(p), nil
}

func testEndedContext(t *testing.T, s *suite) {
	b := s.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e, err := b.Exec(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "echo x > started"}})
	if err != nil || e.Ended != sandbox.Cancelled {
		t.Errorf("%v, %s", err, describe(e))
	}
	if _, err := b.Files().Stat(t.Context(), "started"); err == nil {
		t.Error("the command was started")
	}
}

// quiet checks that nothing writes to a file any more. The sandbox's own
// sleep is the clock, as the host may be slow.
func (b *box) quiet(name string) {
	b.t.Helper()
	before := b.read(name)
	if before == "" {
		b.t.Errorf("%s is empty: the process never lived", name)
	}
	b.sh("sleep 0.2")
	if after := b.read(name); after != before {
		b.t.Errorf("a process lives on: %s grew from %d to %d bytes", name, len(before), len(after))
	}
}

// beat is a shell loop that shows that it lives, in the file "beat".
const beat = "while :; do echo x >> beat; sleep 0.02; done"

func testBackground(t *testing.T, s *suite) {
	b := s.open(t)
	b.want(b.sh("("+beat+") & while [ ! -s beat ]; do sleep 0.01; done; echo done"), sandbox.Exited, 0, "done\n")
	b.quiet("beat")
	b.want(b.sh("("+beat+") >/dev/null 2>&1 </dev/null & while [ ! -s beat ]; do sleep 0.01; done; kill -9 $$"), sandbox.Signaled, 137, "")
	b.quiet("beat")
}

// detach starts a process that left the session and whose parents are gone; it
// holds the command's output open.
const detach = "setsid sh -c 'setsid sh -c \"" + beat + "\" & exit' & while [ ! -s beat ]; do sleep 0.01; done; "

func testDetached(t *testing.T, s *suite) {
	b := s.open(t)
	e := b.sh(detach + "echo done")
	b.want(e, sandbox.Exited, 0, "done\n")
	b.quiet("beat")
}

func testDetachedDeadline(t *testing.T, s *suite) {
	b := s.open(t)
	// A deadline that is too early for the process to live would prove
	// nothing, so the command says when it does.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.ends(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", detach + "echo lives; sleep 100"}, Timeout: 10 * patience, Offload: callback(cancel)}, sandbox.Cancelled)
	b.quiet("beat")
}
