//go:build e2e && linux

package e2e

import (
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// slowScript calls a tool at once, calls it again after a while, and then
// answers.
const slowScript = `
-- look --
round: 1
call: list_workspace_files {}

-- look again --
round: 2
delay: 8s
call: list_workspace_files {}

-- say --
round: 3

All is listed.
`

// lastLine is the last line of a text, without blanks around it.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}

var runName = regexp.MustCompile(`\b[a-z2-7]{20}\b`)

// working starts a run in the process itself and waits until its first turn is printed and
// the model is asked for the second one.
func (d *desk) working(script string) *job {
	d.t.Helper()
	d.file("slow.txtar", script)
	d.file("notes.txt", "a note\n")
	j := d.start("run", "-C", ".", "--script", "slow.txtar", "-m", "list the files")
	j.until("story", func() bool { return strings.Contains(j.stderr.String(), `asks "list the files"`) })
	return j
}

// TestInterrupt parks a run with Ctrl-C, and types the printed command.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	j := d.working(slowScript)
	j.signal(syscall.SIGINT)
	parked := j.wait()
	parked.want(t, 130, "parking the run; interrupt again to exit at once", "parked; resume it with")
	if strings.Contains(parked.stdout, "All is listed.") {
		t.Fatalf("the run went on: %v", parked)
	}
	line := lastLine(parked.stderr)
	if !strings.HasPrefix(line, "rath resume ") {
		t.Fatalf("the last line is no command: %v", parked)
	}
	// It waits in the store, and is not called running.
	d.rath("ps", "--format", "jsonl").want(t, 0, `"queued"`)

	resumed := d.typed(line)
	resumed.want(t, 0, "All is listed.")
	if strings.Contains(resumed.stdout, "echo") {
		t.Errorf("another model answered: %v", resumed)
	}
	// The first answer was recorded while the run was parked, and is not asked
	// for again.
	d.rath("ps", "--format", "jsonl").want(t, 0, `"succeeded"`)
	if o := d.rath("show", "@last"); strings.Count(o.stdout, "All is listed.") != 1 || !strings.Contains(o.stdout, "notes.txt") {
		t.Errorf("the session is not that of an undisturbed run: %v", o)
	}
	// Repeating it has no effect.
	d.typed(line).want(t, 0, "All is listed.")
}

// TestInterruptTwice exits at once, and the run still resumes later.
func TestInterruptTwice(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	// The model would answer long after the test has given up.
	j := d.working(strings.Replace(slowScript, "8s", "5m", 1))
	j.signal(syscall.SIGINT)
	j.until("parking", func() bool { return strings.Contains(j.stderr.String(), "interrupt again to exit at once") })
	j.signal(syscall.SIGINT)
	o := j.wait()
	if o.code != 130 || strings.Contains(o.stderr, "parked") {
		t.Fatalf("want exit 130 at once: %v", o)
	}
	d.file("slow.txtar", strings.Replace(slowScript, "8s", "1ms", 1))
	d.rath("resume", "@last", "--script", "slow.txtar").want(t, 0, "All is listed.")
}

// TestInterruptLastCall interrupts a run whose only call ends while the process waits for
// it: the run has succeeded, and the printed command reports it.
func TestInterruptLastCall(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	j := d.working("\n-- look --\nround: 1\ncall: list_workspace_files {}\n\n-- last --\ndelay: 5s\n\nThat was all.\n")
	j.signal(syscall.SIGINT)
	o := j.wait()
	id := runName.FindString(o.stderr)
	if id == "" {
		t.Fatalf("no run is named: %v", o)
	}
	switch o.code {
	case 130:
		d.typed(lastLine(o.stderr)).want(t, 0, "That was all.")
	case 0:
		o.want(t, 0, "That was all.")
	default:
		t.Errorf("want exit 0 or 130: %v", o)
	}
	d.rath("ps", "--format", "jsonl").want(t, 0, `"succeeded"`)
}

// TestTerminated sends SIGTERM, as a service manager does, which parks the run as well.
func TestTerminated(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	j := d.working(slowScript)
	j.signal(syscall.SIGTERM)
	parked := j.wait()
	parked.want(t, 130, "parked; resume it with")
	d.typed(lastLine(parked.stderr)).want(t, 0, "All is listed.")
}
