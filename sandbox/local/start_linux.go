package local

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/rathcluster/rath/sandbox"
)

// wholeTree: the supervisor is the reaper of everything its command starts.
const wholeTree = true

// baseEnv is what every command finds in its environment.
func baseEnv(b *box) map[string]string {
	env := map[string]string{"PATH": b.o.Path, "HOME": b.dir, "LANG": "C.UTF-8", "TMPDIR": b.tmp}
	if b.info.Isolation == sandbox.IsolationKernel {
		// git gives up on a file of settings that it may not read; the
		// system's may hold credentials.
		env["GIT_CONFIG_NOSYSTEM"] = "1"
	}
	return env
}

// supervisor is a started supervisor, seen from the host.
type supervisor struct {
	cmd     *exec.Cmd
	control *os.File // closing it means stop; the kernel does so if the host dies
	once    sync.Once
	own     string // the folder of the sandbox; "" for a probe
	gone    chan struct{}
	res     result
	err     error
}

// start implements the platform's part of Exec.
func (b *box) start(c command) (process, error) {
	dir, err := b.files.Sub("")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	j := job{
		Argv: c.argv, Env: c.env, Tmp: b.tmp, ABI: b.o.abi, ReadOnly: b.o.ReadOnly, Tasks: cmp.Or(b.most.PIDs, MaxTasks), Disk: b.most.Disk, Room: b.full.Load(),
		Groups: b.groups.first, Net: b.groups.net,
		Confine: b.info.Isolation == sandbox.IsolationKernel,
	}
	s, err := launch(j, b.o, b.own, b.groups, []*os.File{c.stdin, c.stdout, c.stderr}, []*os.File{dir, c.cwd, b.runs})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// launch starts a supervisor for a job of the sandbox with the folder own, as the user of
// its options, in its groups;
// more are its files from workspaceFD on.
func launch(j job, o Options, own string, g *groups, std, more []*os.File) (*supervisor, error) {
	data, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	controlR, controlW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer controlR.Close()
	statusR, statusW, err := os.Pipe()
	if err != nil {
		controlW.Close()
		return nil, err
	}
	defer statusW.Close()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", // also when the file was replaced since
		Args: []string{supervisorName},
		// No variable of the host, and a collector that runs for a long command at
		// most: a supervisor holds little.
		Env:        []string{"GOGC=off", "GOMEMLIMIT=24MiB", "GOTRACEBACK=single"},
		ExtraFiles: append([]*os.File{controlR, statusW}, more...),
		// Its own session: no terminal, and not in the host's process group.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if o.UID != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(o.UID), Gid: uint32(o.GID)}
	}
	// A nil *os.File in an interface is not nil.
	if std != nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = std[0], std[1], std[2]
	}
	if err := cmd.Start(); err != nil {
		controlW.Close()
		statusR.Close()
		return nil, fmt.Errorf("start supervisor: %w", err)
	}
	if err := g.enter(cmd.Process.Pid); err != nil { // it waits for its job
		controlW.Close()
		statusR.Close()
		if errors.Is(err, fs.ErrNotExist) { // Reap takes the groups away from a holder that has been superseded
			err = fmt.Errorf("%w: the sandbox was taken away: %w", sandbox.ErrLost, err)
		}
		return nil, fmt.Errorf("limit the command: %w", errors.Join(err, cmd.Process.Kill(), reap(cmd)))
	}
	s := &supervisor{cmd: cmd, control: controlW, own: own, gone: make(chan struct{})}
	go s.watch(data, statusR)
	return s, nil
}

// reap waits for a supervisor that was killed before it had a job.
func reap(cmd *exec.Cmd) error {
	_, err := cmd.Process.Wait()
	return err
}

// watch hands over the job, waits for the supervisor to end and reads what it
// says. It ends when the supervisor does.
func (s *supervisor) watch(data []byte, statusR *os.File) {
	defer close(s.gone)
	defer statusR.Close()
	msg := append(binary.LittleEndian.AppendUint32(nil, uint32(len(data))), data...)
	_, sendErr := s.control.Write(msg)
	said, readErr := io.ReadAll(statusR)
	waitErr := s.cmd.Wait()
	s.stop()
	if err := json.NewDecoder(bytes.NewReader(said)).Decode(&s.res); err != nil {
		s.err = fmt.Errorf("the supervisor died: %w", errors.Join(sendErr, readErr, waitErr))
	} else if s.res.Failed != "" {
		s.err = fmt.Errorf("the supervisor could not do its part: %s", s.res.Failed)
	}
	if s.err != nil && s.own != "" {
		ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
		defer cancel()
		s.err = errors.Join(s.err, killLeft(ctx, s.own))
	}
}

func (s *supervisor) stop() { s.once.Do(func() { s.control.Close() }) }

// abandon kills the supervisor; watch then kills what it left, as far as it
// can be killed.
func (s *supervisor) abandon() { s.cmd.Process.Kill() }

func (s *supervisor) done() <-chan struct{} { return s.gone }

func (s *supervisor) result() (result, error) { return s.res, s.err }

// tryConfinement starts a supervisor that confines itself and tries to do
// what a command must not. It returns a description of the confinement, or
// why there is none.
func tryConfinement(ctx context.Context, o Options) (detail, why string, err error) {
	abi, err := landlockABI(o.abi)
	if err != nil {
		return "", fmt.Sprintf("no Landlock (%v)", err), nil
	}
	if auditArch == 0 {
		return "", "no seccomp filter for this processor", nil
	}
	dir, err := os.MkdirTemp("", "rath-probe-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(dir)
	canary, inside := filepath.Join(dir, "canary"), filepath.Join(dir, "inside")
	if err := errors.Join(os.WriteFile(canary, []byte("x"), 0o600), os.Mkdir(inside, 0o700)); err != nil {
		return "", "", err
	}
	ws, err := os.Open(inside)
	if err != nil {
		return "", "", err
	}
	defer ws.Close()
	s, err := launch(job{Probe: canary, Tmp: inside, ABI: o.abi, ReadOnly: o.ReadOnly}, Options{}, "", nil, nil, []*os.File{ws})
	if err != nil {
		return "", "", err
	}
	defer s.stop()
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-s.done():
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = errors.New("the supervisor does not answer; does main call local.Reexec() first?")
	}
	if err != nil {
		s.abandon()
		<-s.done()
		return "", "", err
	}
	r, err := s.result()
	if err != nil {
		return "", "", err
	}
	if r.Refused != "" {
		return "", r.Refused, nil
	}
	return fmt.Sprintf("landlock abi %d, seccomp, no network", abi), "", nil
}
