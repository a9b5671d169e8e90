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

// ends runs a command that would run for minutes and checks that it is stopped long before.
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
	const deadline = 2 * time.Second // each of them must start within it, also on a slow machine
	b := s.open(t)
	var wg sync.WaitGroup
	inputs := []struct{ input, script string }{
		{"sleep past the deadline", "sleep 100"},
		{"ignore each signal that can be ignored", "trap '' TERM INT HUP QUIT; while :; do sleep 100; done"},
		{"stop itself", "kill -STOP $$; sleep 100"},
		{"sleep past the deadline in a child", "sleep 100 & sleep 100"},
		{"turn without end", "while :; do :; done"},
	}
	ends := make([]string, len(inputs))
	for i, tt := range inputs {
		// Concurrently, as each of them takes its whole timeout.
		wg.Go(func() {
			e, err := b.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo began; " + tt.script}, Timeout: deadline})
			if err != nil || e.Ended != sandbox.Deadline || e.Code == 0 || e.Elapsed < deadline || e.Elapsed > patience || string(e.Stdout.Bytes()) != "began\n" {
				t.Errorf("%s: %v, %s", tt.input, err, describe(e))
			}
			ends[i] = how(e)
		})
	}
	wg.Wait()
	for i, tt := range inputs {
		s.end(t, tt.input, ends[i])
	}
}

func testCancel(t *testing.T, s *suite) {
	b := s.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// The command triggers the cancellation itself.
	e := b.ends(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "echo began; sleep 100"}, Timeout: 10 * patience, Offload: callback(cancel)}, sandbox.Cancelled)
	if string(e.Stdout.Bytes()) != "began\n" {
		t.Error(describe(e))
	}
	ctx, cancel = context.WithTimeout(t.Context(), short)
	defer cancel()
	b.ends(ctx, sandbox.Cmd{Argv: []string{"sleep", "100"}, Timeout: 10 * patience}, sandbox.Cancelled)
}

// callback is a writer that calls the function at the first output.
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

// quiet checks that no process writes to a file any more, and returns the end for the
// table. The sandbox's own sleep is the clock, as the host may be slow.
func (b *box) quiet(name string) string {
	b.t.Helper()
	before := b.read(name)
	if before == "" {
		b.t.Errorf("%s is empty: the process never lived", name)
	}
	b.sh("sleep 0.2")
	if after := b.read(name); after != before {
		b.t.Errorf("a process lives on: %s grew from %d to %d bytes", name, len(before), len(after))
		return "lives on"
	}
	return "killed"
}

// beat is a shell loop that writes to the file "beat" while it lives.
const beat = "while :; do echo x >> beat; sleep 0.02; done"

func testBackground(t *testing.T, s *suite) {
	b := s.open(t)
	b.want(b.sh("("+beat+") & while [ ! -s beat ]; do sleep 0.01; done; echo done"), sandbox.Exited, 0, "done\n")
	b.quiet("beat")
	b.want(b.sh("("+beat+") >/dev/null 2>&1 </dev/null & while [ ! -s beat ]; do sleep 0.01; done; kill -9 $$"), sandbox.Signaled, 137, "")
	s.end(t, "leave a process in the background", b.quiet("beat")+" with the command")
}

// detach starts a process that left the session and whose parents have ended; it holds the
// command's output open.
const detach = "setsid sh -c 'setsid sh -c \"" + beat + "\" & exit' & while [ ! -s beat ]; do sleep 0.01; done; "

func testDetached(t *testing.T, s *suite) {
	b := s.open(t)
	e := b.sh(detach + "echo done")
	b.want(e, sandbox.Exited, 0, "done\n")
	s.end(t, "leave the session by a double fork, outlive the command", b.quiet("beat")+" with the command")
}

// testRelay has a process start its successor in a session of its own and end, repeatedly,
// faster than a scan of the processes finds them.
func testRelay(t *testing.T, s *suite) {
	b := s.open(t)
	b.write("relay", "echo x >> beat\nsetsid sh relay &\n")
	b.want(b.sh("sh relay; while [ $(wc -c < beat) -lt 20 ]; do :; done; echo done"), sandbox.Exited, 0, "done\n")
	s.end(t, "hand on from process to process, each in a session of its own", b.quiet("beat")+" with the command")
}

func testDetachedDeadline(t *testing.T, s *suite) {
	b := s.open(t)
	// A deadline before the process lives would prove too little, so the command signals
	// when it does.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e := b.ends(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", detach + "echo lives; sleep 100"}, Timeout: 10 * patience, Offload: callback(cancel)}, sandbox.Cancelled)
	s.end(t, "the same, holding the output open", how(e)+", "+b.quiet("beat"))
}
