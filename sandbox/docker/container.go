package docker

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/directory"
	"github.com/rathcluster/rath/internal/sandbox/execd"
	"github.com/rathcluster/rath/internal/sandbox/loopback"
	"github.com/rathcluster/rath/internal/sandbox/proc"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
)

// engine is the API of a container engine that this package needs: it manages the life of
// containers, not the processes in them.
type engine interface {
	info(ctx context.Context) (about, error)
	image(ctx context.Context, ref string) (id string, err error) // errNotFound
	importImage(ctx context.Context, tar io.Reader, ref string) error
	create(ctx context.Context, c containerSpec) (id string, err error)
	start(ctx context.Context, id string) error
	rename(ctx context.Context, id, name string) error
	running(ctx context.Context, id string) (bool, error)
	remove(ctx context.Context, id string) error
	// list omits containers without a name. The engine removes a container's name when it
	// has removed the container, and may list the rest until the engine restarts: 20.10
	// does so if a container ends while the engine restarts after a kill.
	list(ctx context.Context, label string) ([]listed, error)
	address() string
	class(err error) (gone, denied bool)
}

type (
	// about describes an engine.
	about struct {
		Version, OS, Arch, DefaultRuntime string
		Runtimes                          []string
		Memory, Swap, CPU, PIDs           bool // limits that it enforces
		Remapped                          bool // its root is another user of the host
	}
	// containerSpec is a container without network, of the root user with a few
	// capabilities, on a read-only root file system.
	containerSpec struct {
		Name, Image, Runtime string
		Command, Env, Caps   []string
		Labels               map[string]string
		Binds                []bind
		Tmpfs                map[string]string // target to options
		Memory               int64             // bytes, without swap
		CPU                  float64
		PIDs                 int64
	}
	bind struct {
		Source, Target string
		ReadOnly       bool
	}
	listed struct {
		ID, Name string
		Labels   map[string]string
		Created  time.Time
	}
)

// The labels of containers.
const (
	labelLease  = "rath.sandbox.lease" // a proc.Lease of the process that opened it
	labelSpace  = "rath.sandbox.pidns" // the PID namespace of the process
	labelFolder = "rath.sandbox.folder"
)

// daemonCaps are the capabilities of the exec daemon. It creates the temporary directory of
// commands and starts them under their own user, who has none.
var daemonCaps = []string{"CHOWN", "DAC_OVERRIDE", "KILL", "SETGID", "SETUID"}

const (
	// spareTasks are the tasks of the daemon and the supervisors.
	spareTasks = 512
	// tmpSize bounds the temporary files of a sandbox without a limit of memory.
	tmpSize = 512 << 20
)

// instance is a running container, with its daemon.
type instance struct {
	user
	id     string
	folder string // on the host: its socket
	client *execd.Client
	proxy  *loopback.Socket     // nil without a list of hosts
	inside sandbox.Capabilities // the capabilities of its daemon
	ranOut atomic.Bool          // it ran out of memory, see driver.ranOut
}

// launch starts a container over dir, or over an empty directory of its own, and becomes
// the holder of its daemon. It uses the network of o.
func (b *driver) launch(ctx context.Context, name, dir string, u user, k kind, lease proc.Lease, o execd.Opening) (_ *instance, err error) {
	ctx, cancel := b.asking(ctx)
	defer cancel()
	c := &instance{user: u}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.discard(c))
		}
	}()
	data, err := json.Marshal(lease)
	if err != nil {
		return nil, err
	}
	if c.folder, err = os.MkdirTemp(b.o.State, proc.Folder(os.Getpid())); err != nil {
		return nil, err
	}
	socket := filepath.Join(c.folder, socketDir)
	if dir == "" {
		dir = filepath.Join(c.folder, workspaceDir)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, u.uid, u.gid)); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(socket, 0o700); err != nil {
		return nil, err
	}
	spec := containerSpec{
		Name: name, Image: k.image, Runtime: b.o.Runtime,
		Command: []string{"/run/rath/" + execd.Name},
		Env:     []string{"TMPDIR=" + execd.StateDir, "GOMEMLIMIT=32MiB"},
		Caps:    daemonCaps,
		Labels:  map[string]string{labelLease: string(data), labelSpace: pidSpace(), labelFolder: c.folder},
		Binds: []bind{
			{Source: dir, Target: execd.Workspace},
			{Source: socket, Target: execd.SocketDir},
			{Source: filepath.Join(b.o.State, execd.Name), Target: "/run/rath/" + execd.Name, ReadOnly: true},
		},
		Tmpfs:  map[string]string{execd.StateDir: "rw,exec,nosuid,nodev,mode=0711,size=" + strconv.FormatInt(tmpBytes(k.limits), 10)},
		Memory: k.limits.Memory, CPU: k.limits.CPU, PIDs: int64(spareTasks + local.MaxTasks),
	}
	if k.limits.Memory > 0 { // for the commands; the daemon has memory of its own
		overhead, err := execd.Overhead()
		if err != nil {
			return nil, err
		}
		spec.Memory += overhead
	}
	if k.limits.PIDs > 0 {
		spec.PIDs = int64(spareTasks + k.limits.PIDs)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// An engine whose client leaves during a request creates the container all the same,
	// and its id would be unknown.
	making, made := b.asking(context.WithoutCancel(ctx))
	defer made()
	c.id = name // the name stands for the id: an engine whose answer is lost has created it
	id, err := b.engine.create(making, spec)
	if err != nil {
		return nil, b.explain("create a container of the image "+k.image, err)
	}
	c.id = id
	if err := b.engine.start(ctx, c.id); err != nil {
		return nil, b.explain("start a container", err)
	}
	if c.client, err = b.dial(ctx, c.id, socket); err != nil {
		return nil, err
	}
	o.UID, o.GID, o.Limits = c.uid, c.gid, k.limits
	if c.inside, err = c.client.Open(ctx, o); err != nil {
		return nil, err
	}
	return c, nil
}

// dial becomes the holder of the daemon. It gives up when the container has ended.
func (b *driver) dial(ctx context.Context, id, socket string) (*execd.Client, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		for tick := time.Tick(500 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick:
			}
			if up, err := b.engine.running(ctx, id); err == nil && !up {
				stop(errors.New("its container has ended"))
				return
			}
		}
	}()
	return execd.Dial(ctx, socket, b.o.Lease)
}

// discard ends a container and removes its resources, also after a partial start.
func (b *driver) discard(c *instance) error {
	var errs []error
	if c.proxy != nil {
		errs = append(errs, c.proxy.Close())
	}
	if c.client != nil {
		_ = c.client.Close() // a client that has ended already is no error
	}
	if c.id != "" {
		ctx, cancel := b.asking(context.Background())
		defer cancel()
		if err := b.engine.remove(ctx, c.id); err != nil {
			errs = append(errs, b.explain("remove the container", err))
		}
	}
	if c.folder != "" && len(errs) == 0 {
		errs = append(errs, os.RemoveAll(c.folder))
	}
	return errors.Join(errs...)
}

// ranOut waits until the container of an ended daemon has ended as well, and reports
// whether its memory ran out. It reports false if the engine cannot be reached.
func (b *driver) ranOut(ctx context.Context, c *instance) bool {
	ctx, cancel := b.asking(ctx)
	defer cancel()
	for {
		up, err := b.engine.running(ctx, c.id)
		if c.ranOut.Load() || execd.RanOut(filepath.Join(c.folder, socketDir)) { // recorded before the end
			c.ranOut.Store(true) // another command may ask after the folder was removed
			return true
		}
		if !up || err != nil {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tmpBytes bounds the temporary files, which are in memory.
func tmpBytes(l sandbox.Limits) int64 {
	if l.Memory > 0 {
		return l.Memory / 2
	}
	return tmpSize
}

// user is the user that runs the commands of a sandbox and owns its files.
type user struct{ uid, gid int }

// newUser picks a user ID that no user of this host has, and very probably no other
// sandbox. A process that is not root cannot give its files to another user.
func newUser() (user, error) {
	if os.Geteuid() != 0 {
		return user{os.Geteuid(), os.Getegid()}, nil
	}
	n, err := rand.Int(rand.Reader, big.NewInt(1<<24))
	if err != nil {
		return user{}, err
	}
	uid := 1<<30 + int(n.Int64())
	return user{uid, uid}, nil
}

// open opens the workspace of a sandbox of this user.
func (u user) open(dir string) (*directory.Directory, error) {
	if u.uid == os.Geteuid() {
		return directory.Open(dir, nil)
	}
	return directory.Open(dir, &directory.Owner{UID: u.uid, GID: u.gid})
}

// containerName returns a new name with the container's owner and epoch.
func containerName(owner string, epoch uint64) string {
	tail := strings.ToLower(rand.Text()[:12])
	if owner == "" {
		return "rath-" + tail
	}
	sum := sha256.Sum256([]byte(owner))
	return fmt.Sprintf("rath-%s-%d-%s", hex.EncodeToString(sum[:8]), epoch, tail)
}

// pidSpace returns the name of this process's PID namespace.
func pidSpace() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return name
}
