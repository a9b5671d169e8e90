package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/proc"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
)

// hostEnv makes the test binary a host that opens a sandbox over the directory in the
// variable, runs a command in it and waits to be killed.
const hostEnv = "RATH_TEST_HOST"

// RunHost is called by TestMain; it returns in every process except such a host.
func RunHost() {
	dir := os.Getenv(hostEnv)
	if dir == "" {
		return
	}
	b := newDriver(&Options{State: filepath.Join(dir, "state"), Isolation: sandbox.Isolation(os.Getenv(hostEnv + "_LEVEL"))})
	spec := sandbox.Spec{
		Dir: filepath.Join(dir, "work"), MinIsolation: sandbox.IsolationProcess, Owner: "session-1", Epoch: 7,
	}
	if len(hierarchies()) > 0 { // so that Reap finds groups
		spec.Limits = sandbox.Limits{PIDs: 100}
	}
	s, err := b.Open(context.Background(), spec)
	if err == nil {
		_, err = s.Exec(context.Background(), sandbox.Cmd{Argv: []string{"sh", "-c", detached + " touch ready; sleep 100"}})
	}
	fmt.Fprintln(os.Stderr, "host:", err)
	os.Exit(1)
}

// detached starts a process that leaves its session and its parents, and one that does not.
const detached = "setsid sh -c 'setsid sleep 101 & exit' & sleep 102 & "

// startHost starts a host and returns when all processes of its command run.
func startHost(t *testing.T, level sandbox.Isolation) (dir string, host *exec.Cmd) {
	t.Helper()
	dir = t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, "work"), 0o755))
	host = exec.Command("/proc/self/exe")
	host.Env = append(os.Environ(), hostEnv+"="+dir, hostEnv+"_LEVEL="+string(level))
	host.Stderr = os.Stderr
	must.Do(t, host.Start())
	t.Cleanup(func() {
		host.Process.Kill()
		host.Wait()
		if _, err := Reap(context.Background(), filepath.Join(dir, "state")); err != nil {
			t.Error(err)
		}
	})
	until(t, "the command runs", func() bool {
		_, err := os.Stat(filepath.Join(dir, "work", "ready"))
		return err == nil
	})
	own := onlyFolder(t, filepath.Join(dir, "state"))
	until(t, "all of it runs", func() bool {
		sleeps := map[int]bool{}
		for _, p := range alive(t, own) {
			if name, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/comm"); err == nil && string(name) == "sleep\n" {
				sleeps[p.PID] = true
			}
		}
		return len(sleeps) == 3 // two in the background, and the one in front
	})
	return dir, host
}

// until waits for a condition, as long as a slow machine may need.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("does not happen: %s", what)
		}
	}
}

// alive lists the processes with the mark of a sandbox, each once.
func alive(t *testing.T, own string) []proc.Process {
	t.Helper()
	runs := must.Get(readRuns(filepath.Join(own, runsFile)))(t)
	left := leftOver(runs, []byte("\x00TMPDIR="+filepath.Join(own, tmpDir)+"\x00"))
	slices.SortFunc(left, func(a, b proc.Process) int { return a.PID - b.PID })
	return slices.CompactFunc(left, func(a, b proc.Process) bool { return a.PID == b.PID })
}

// stopped reports whether all threads of a process have stopped. One of them takes a stop
// signal, and the others a moment later.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads of %d: %v, %v", pid, threads, err)
	}
	for _, thread := range threads {
		data, err := os.ReadFile(thread)
		if err != nil {
			return false
		}
		if _, after, _ := strings.Cut(string(data), ") "); !strings.HasPrefix(after, "T") {
			return false
		}
	}
	return true
}

func onlyFolder(t *testing.T, state string) string {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(state, "box-*"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("folders: %v, %v", folders, err)
	}
	return folders[0]
}

var levels = []sandbox.Isolation{"", sandbox.IsolationProcess}

func TestHostKilled(t *testing.T) {
	for _, level := range levels {
		t.Run("level "+string(level), func(t *testing.T) {
			dir, host := startHost(t, level)
			own := onlyFolder(t, filepath.Join(dir, "state"))
			host.Process.Kill()
			host.Wait()
			// No Reap runs: the supervisor notices by itself.
			until(t, "the tree dies with its host", func() bool { return len(alive(t, own)) == 0 })
			sandboxtest.End(t, "local: run on when the host is killed", "killed")
		})
	}
}

func TestReap(t *testing.T) {
	for _, level := range levels {
		t.Run("level "+string(level), func(t *testing.T) {
			dir, host := startHost(t, level)
			state := filepath.Join(dir, "state")
			own := onlyFolder(t, state)
			if got, err := Reap(t.Context(), state); err != nil || len(got) != 0 {
				t.Fatalf("Reap touched the sandbox of a living process: %v, %v", got, err)
			}

			// If they are killed together, the supervisor has no time to clean up, and the
			// host none to notice its death.
			runs, err := readRuns(filepath.Join(own, runsFile))
			must.Do(t, err)
			for _, r := range runs {
				if p, ok := proc.Read(r.pid); ok && p.PPID == host.Process.Pid {
					must.Do(t, host.Process.Signal(syscall.SIGSTOP))
					until(t, "the host is stopped", func() bool { return stopped(t, host.Process.Pid) })
					proc.Kill(p)
				}
			}
			host.Process.Kill()
			host.Wait()
			if len(alive(t, own)) < 3 {
				t.Fatal("nothing is left to reap; the test shows nothing")
			}
			got, err := reap(t.Context(), state, gone)
			if err != nil || len(got) != 1 {
				t.Fatalf("Reap: %v, %v", got, err)
			}
			l := got[0]
			if l.Dir != filepath.Join(dir, "work") || l.Owner != "session-1" || l.Epoch != 7 || l.PID != host.Process.Pid {
				t.Errorf("the lease is %+v", l)
			}
			if left := alive(t, own); len(left) != 0 {
				t.Errorf("left alive: %+v", left)
			}
			if _, err := os.Stat(own); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder is still there: %v", err)
			}
			if _, err := os.Stat(l.Dir); err != nil {
				t.Errorf("the workspace is the caller's to remove: %v", err)
			}
			if got, err := Reap(t.Context(), state); err != nil || len(got) != 0 {
				t.Errorf("a second Reap: %v, %v", got, err)
			}
		})
	}
}

// TestReapWithoutLease: the folder of a process that was killed before it wrote a lease is
// removed at once, and a folder under construction stays.
func TestReapWithoutLease(t *testing.T) {
	state := t.TempDir()
	dead := exec.Command("sleep", "1000")
	must.Do(t, dead.Start())
	left, mine := filepath.Join(state, proc.Folder(dead.Process.Pid)+"1"), filepath.Join(state, proc.Folder(os.Getpid())+"1")
	for _, dir := range []string{left, mine} {
		must.Do(t, os.Mkdir(dir, 0o700))
	}
	must.Do(t, dead.Process.Kill())
	_ = dead.Wait() // it was killed
	if _, err := Reap(t.Context(), state); err != nil {
		t.Error(err)
	}
	if got := onlyFolder(t, state); got != mine {
		t.Errorf("%s is left", got)
	}
}

// TestReapLowerEpoch reaps a sandbox of a living holder, with running commands and after
// many others: no supervisor is left to report that its command was killed.
func TestReapLowerEpoch(t *testing.T) {
	state := t.TempDir()
	s := must.Get(newDriver(&Options{State: state}).Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: sandbox.IsolationProcess, Epoch: 3}))(t)
	defer s.Close()
	own := onlyFolder(t, state)
	runs := must.Get(os.OpenFile(filepath.Join(own, runsFile), os.O_APPEND|os.O_WRONLY, 0))(t)
	defer runs.Close()
	for i := range 10_000 {
		const none = 1 << 22 // processes have lower numbers
		must.Get(fmt.Fprintln(runs, none+i, 1))(t)
	}
	const commands = 8
	ended := make(chan error, commands)
	for range commands {
		go func() {
			_, err := s.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "sleep 100; true"}})
			ended <- err
		}()
	}
	until(t, "the commands run", func() bool { return len(alive(t, own)) >= 3*commands })
	if got, err := reap(t.Context(), state, func(l proc.Lease) bool { return l.Epoch < 3 }); err != nil || len(got) != 0 {
		t.Fatalf("Reap of lower epochs: %v, %v", got, err)
	}
	if got, err := reap(t.Context(), state, func(l proc.Lease) bool { return l.Epoch < 4 }); err != nil || len(got) != 1 {
		t.Fatalf("Reap: %v, %v", got, err)
	}
	for range commands {
		if err := <-ended; !errors.Is(err, sandbox.ErrLost) {
			t.Errorf("a command under it ended with %v, want ErrLost", err)
		}
	}
	if _, err := s.Exec(t.Context(), sandbox.Cmd{Argv: []string{"true"}}); !errors.Is(err, sandbox.ErrLost) {
		t.Errorf("the next command ended with %v, want ErrLost", err)
	}
}

// TestReapSparesStrangers gives Reap a record whose numbers now belong to other processes.
func TestReapSparesStrangers(t *testing.T) {
	stranger := exec.Command("sleep", "100")
	stranger.Env = []string{"PATH=" + DefaultPath}
	must.Do(t, stranger.Start())
	defer func() {
		stranger.Process.Kill()
		stranger.Wait()
	}()
	start, ok := proc.Started(stranger.Process.Pid)
	if !ok {
		t.Fatal("no start time")
	}
	own := filepath.Join(t.TempDir(), "box-old")
	must.Do(t, os.Mkdir(own, 0o700))
	runs := fmt.Sprintf("%d %d\n%d %d\nhalf a li", stranger.Process.Pid, start-1, stranger.Process.Pid, start+1)
	lease := `{"pid":` + strconv.Itoa(stranger.Process.Pid) + `,"started":1,"boot":"another boot"}`
	for name, text := range map[string]string{runsFile: runs, leaseFile: lease} {
		must.Do(t, os.WriteFile(filepath.Join(own, name), []byte(text), 0o600))
	}
	if got, err := Reap(t.Context(), filepath.Dir(own)); err != nil || len(got) != 1 {
		t.Fatalf("Reap: %v, %v", got, err)
	}
	if now, ok := proc.Started(stranger.Process.Pid); !ok || now != start {
		t.Error("a process that only had the number was killed")
	}
}

// TestSupervisorKilled lets an unconfined command kill its supervisor.
func TestSupervisorKilled(t *testing.T) {
	state := t.TempDir()
	s, err := newDriver(&Options{State: state, Isolation: sandbox.IsolationProcess}).Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: sandbox.IsolationProcess})
	must.Do(t, err)
	defer s.Close()
	own := onlyFolder(t, state)
	_, err = s.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", detached + "kill -9 $PPID; sleep 100"}})
	if !errors.Is(err, sandbox.ErrLost) {
		t.Errorf("Exec = %v, want ErrLost", err)
	}
	if left := alive(t, own); len(left) != 0 {
		t.Errorf("left alive: %+v", left)
	}
}

// TestTooManyProcesses lowers the limit so that a few processes reach it, also while more
// than these end elsewhere on the machine.
func TestTooManyProcesses(t *testing.T) {
	for name, others := range map[string]int{"alone": 0, "while others end": 120} {
		t.Run(name, func(t *testing.T) {
			s, err := newDriver(&Options{State: t.TempDir()}).Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: sandbox.IsolationProcess, Limits: sandbox.Limits{PIDs: 30}})
			must.Do(t, err)
			defer s.Close()
			g := s.(*box).groups
			must.Do(t, g.close(t.Context()))
			s.(*box).groups = &groups{} // as where none can be made
			ctx, end := context.WithCancel(t.Context())
			defer end()
			running := make([]*exec.Cmd, others)
			for i := range running {
				running[i] = exec.CommandContext(ctx, "sleep", "100")
				must.Do(t, running[i].Start())
			}
			e, err := s.Exec(t.Context(), sandbox.Cmd{
				Argv:    []string{"sh", "-c", "touch there; read line; i=0; while [ $i -lt 80 ]; do sleep 100 & i=$((i+1)); done; wait"},
				Timeout: time.Minute,
				Stdin: readFunc(func(p []byte) (int, error) {
					for ; t.Context().Err() == nil; time.Sleep(time.Millisecond) {
						if _, err := s.Files().Stat(t.Context(), "there"); err == nil {
							break
						}
					}
					end()
					for _, c := range running {
						_ = c.Wait() // killed
					}
					return copy(p, "go\n"), io.EOF
				}),
			})
			if err != nil || e.Ended != sandbox.Signaled || !strings.Contains(string(e.Stderr.Bytes()), "more than 30 processes") {
				t.Errorf("%v, ended %q, %s", err, e.Ended, e.Stderr.Bytes())
			}
		})
	}
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }
