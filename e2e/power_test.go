//go:build e2e && linux

package e2e

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

func init() { children["committer"] = committer }

// bus starts the embedded server over a directory and connects to it as a node.
func bus(ctx context.Context, dir string, level streams.Level) (*api.Conn, func() error, error) {
	srv, err := natsserver.Start(ctx, &natsserver.Options{StoreDir: dir, Lazy: level == streams.Lazy, MaxStore: 1 << 30})
	if err != nil {
		return nil, nil, err
	}
	user, password := srv.Node()
	c, err := api.Connect(ctx, &streams.Options{
		Options: conn.Options{Dialer: func() (net.Conn, error) { return srv.Dial() }, User: user, Password: password, Inbox: conn.NodeInbox},
		Level:   level, StoreBytes: 512 << 20,
		Probe: func(context.Context) ([]streams.SyncState, error) {
			always, interval, err := srv.Sync()
			return []streams.SyncState{{Server: srv.Name(), Always: always, Interval: interval}}, err
		},
	})
	if err == nil {
		err = c.Streams.Provision(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	return c, func() error { return errors.Join(c.Conn.Close(), srv.Shutdown(ctx)) }, nil
}

// committer appends commits to sixteen sessions as fast as it can and prints
// each one once it was acknowledged: session, sequence, hash.
func committer() error {
	ctx := context.Background()
	c, _, err := bus(ctx, os.Getenv("RATH_E2E_STORE"), streams.Level(os.Getenv("RATH_E2E_LEVEL")))
	if err != nil {
		return err
	}
	mint := commitlog.IDGenerator{Generation: c.Streams.Generation(), Partitions: c.Streams.Partitions()}
	log := c.Logs.Log()
	var mu sync.Mutex
	fmt.Println("ready")
	errs := make(chan error)
	for i := range 16 {
		go func() {
			k := session.Key{Tenant: "power", ID: mint.ID("s" + strconv.Itoa(i))}
			var at commitlog.Position
			for n := 0; ; n++ {
				events := []session.Event{session.ChunkEvent(session.UserText(fmt.Sprint("row ", n, strings.Repeat(" and more", n%50))))}
				if n == 0 {
					events = append([]session.Event{session.OpenedEvent(session.Opening{Kind: session.OpenLeaf})}, events...)
				}
				next, err := log.Append(ctx, at, commitlog.Commit{Key: k, Root: k.ID, Seq: at.Seq + 1, Epoch: 1, Prev: at.Hash, Events: events})
				if err != nil {
					errs <- err
					return
				}
				at = next
				mu.Lock()
				fmt.Println(k.ID, at.Seq, at.Hash)
				mu.Unlock()
			}
		}()
	}
	return <-errs
}

// disk is an ext4 file system on a loop device whose power can be cut.
type disk struct {
	t     *testing.T
	image string
	mount string
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	return newDiskOf(t, 2<<30)
}

// newDiskOf makes a disk of a size, with no space reserved for root.
func newDiskOf(t *testing.T, size int64) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("a file system of a test's own needs root")
	}
	dir := t.TempDir()
	d := &disk{t: t, image: filepath.Join(dir, "disk.img"), mount: filepath.Join(dir, "mnt")}
	f, err := os.Create(d.image)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close(), os.Mkdir(d.mount, 0o755))
	}
	must.Do(t, err)
	d.run("mkfs.ext4", "-q", "-F", "-m", "0", d.image)
	d.up()
	t.Cleanup(func() { _ = unix.Unmount(d.mount, 0) })
	return d
}

func (d *disk) run(name string, args ...string) {
	d.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		d.t.Fatalf("%s %s: %v\n%s(Debian: apt-get install e2fsprogs mount)", name, strings.Join(args, " "), err, out)
	}
}

func (d *disk) up() { d.t.Helper(); d.run("mount", "-o", "loop", d.image, d.mount) }

// ext4Shutdown is EXT4_IOC_SHUTDOWN; without flushing, unsynced data is lost, as at a power
// cut.
const (
	ext4Shutdown        = 0x8004587d
	shutdownWithoutSync = 2
)

// cut ends the file system at once.
func (d *disk) cut() {
	d.t.Helper()
	f := must.Get(os.Open(d.mount))(d.t)
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), ext4Shutdown, shutdownWithoutSync); err != nil {
		d.t.Fatalf("cut the power of %s: %v", d.mount, err)
	}
}

// again brings the power back.
func (d *disk) again() {
	d.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := unix.Unmount(d.mount, 0)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("unmount %s: %v", d.mount, err)
		}
		time.Sleep(20 * time.Millisecond) // the killed process is still letting go of its files
	}
	// A process with its own mounts, such as a concurrently started fleet, keeps the
	// powerless file system alive; mounting its image would return the same file system.
	left := d.image
	d.image += "+"
	d.run("cp", "--sparse=always", left, d.image)
	d.up()
}

type acked struct {
	id   session.ID
	seq  uint64
	hash session.Hash
}

// cutDuringCommits lets a process commit, cuts the power after some acknowledgements and
// returns how many of them the log still has.
func cutDuringCommits(t *testing.T, level streams.Level, after int) (total, lost int) {
	t.Helper()
	d := newDisk(t)
	store := filepath.Join(d.mount, "store")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=committer", "RATH_E2E_STORE="+store, "RATH_E2E_LEVEL="+string(level))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	must.Do(t, err)
	var acks []acked
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) != 3 {
			continue
		}
		a := acked{id: session.ID(f[0])}
		a.seq, _ = strconv.ParseUint(f[1], 10, 64)
		if _, err := hex.Decode(a.hash[:], []byte(f[2])); err != nil {
			t.Fatalf("line %q: %v", lines.Text(), err)
		}
		// No process runs without power: a server that outlives its disk for a moment could
		// acknowledge data that it did not write. So the test stops the process first; its
		// earlier output counts.
		if acks = append(acks, a); len(acks) == after {
			halt(t, cmd.Process)
			d.cut()
			must.Do(t, cmd.Process.Kill())
		}
	}
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err == nil || len(acks) < after {
		t.Fatalf("the committer ended by itself after %d acknowledgements", len(acks))
	}
	d.again()
	return len(acks), countLost(t, store, level, acks)
}

// halt stops all threads of a process.
func halt(t *testing.T, p *os.Process) {
	t.Helper()
	must.Do(t, p.Signal(syscall.SIGSTOP))
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		running := 0
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("threads of process %d: %v", p.Pid, err)
		}
		for _, thread := range threads {
			// "tid (name) state …"; a thread that waits for the disk stops right after the wait.
			stat, err := os.ReadFile(thread)
			if err == nil && !strings.Contains(string(stat), ") T ") && !strings.Contains(string(stat), ") D ") {
				running++
			}
		}
		if running == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d threads of process %d do not stop", running, p.Pid)
		}
	}
}

func countLost(t *testing.T, store string, level streams.Level, acks []acked) (lost int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, stop, err := bus(ctx, store, level)
	if err != nil {
		if level == streams.Lazy {
			t.Logf("the store does not even open: %v", err)
			return len(acks)
		}
		t.Fatalf("open the store after the power cut: %v", err)
	}
	defer func() { must.Report(t, stop()) }()
	return missing(ctx, t, c.Logs.Log(), acks)
}

// missing counts the acknowledged commits that a log does not hold.
func missing(ctx context.Context, t *testing.T, log commitlog.Log, acks []acked) (lost int) {
	t.Helper()
	kept := map[session.ID]map[uint64]session.Hash{}
	for _, a := range acks {
		if kept[a.id] == nil {
			kept[a.id] = map[uint64]session.Hash{}
			for e, err := range log.Read(ctx, session.Key{Tenant: "power", ID: a.id}, commitlog.Position{}) {
				if err != nil {
					t.Fatalf("read %s: %v", a.id, err)
				}
				kept[a.id][e.At.Seq] = e.At.Hash
			}
		}
		if kept[a.id][a.seq] != a.hash {
			lost++
		}
	}
	return lost
}

// TestPowerCut: at level fsync no acknowledged commit is lost at a power cut.
// The same cut at level lazy loses some, which shows that the test can see it.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	for _, after := range []int{200, 700, 1500} {
		total, lost := cutDuringCommits(t, streams.Fsync, after)
		t.Logf("level fsync: %d of %d acknowledged commits lost", lost, total)
		if lost > 0 {
			t.Errorf("level fsync lost %d of %d acknowledged commits", lost, total)
		}
	}
	total, lost := cutDuringCommits(t, streams.Lazy, 1500)
	t.Logf("level lazy: %d of %d acknowledged commits lost", lost, total)
	if lost == 0 {
		t.Errorf("level lazy lost none of %d commits: this test cannot see a loss", total)
	}
}
