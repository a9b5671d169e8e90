package opensandbox

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/execd"
	"github.com/rathcluster/rath/sandbox"
)

// The metadata of sandboxes. A server accepts the values that Kubernetes accepts for
// labels.
const (
	leaseKey = "rath-lease" // one open sandbox of one process
	ownerKey = "rath-owner"
	epochKey = "rath-epoch"
)

const (
	// startPatience is how long a server may take to start a sandbox that answers.
	startPatience = 3 * time.Minute
	// removePatience is how long the server may take to delete a sandbox.
	removePatience = time.Minute
	// The interval between two checks of a starting sandbox doubles up to mostWait.
	pollWait = 20 * time.Millisecond
	mostWait = 500 * time.Millisecond
)

// poll calls look until it reports done or fails, or ctx ends.
func poll(ctx context.Context, look func() (done bool, err error)) error {
	for wait := pollWait; ; wait = min(2*wait, mostWait) {
		if done, err := look(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// request describes a sandbox to create.
type request struct {
	image  string
	limits sandbox.Limits
	owner  string
	epoch  uint64
	open   execd.Opening // its network
}

// instance is a running sandbox, with its daemon.
type instance struct {
	b      *driver
	id     string
	dir    string        // of its files, in this lease
	client *execd.Client // nil until the daemon is held
	inside sandbox.Capabilities
	execd  *port // the server's daemon

	renewing context.CancelFunc
	renewed  sync.WaitGroup
}

// launch creates a sandbox and becomes the holder of a daemon in it.
func (b *driver) launch(ctx context.Context, r request) (_ *instance, err error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	lease := strings.ToLower(rand.Text())
	x := &instance{b: b}
	made, err := b.create(ctx, lease, r)
	if err != nil {
		return nil, err
	}
	x.id = made.ID
	defer func() {
		if err != nil {
			err = errors.Join(err, x.Discard())
		}
	}()
	keep, stop := context.WithCancel(context.WithoutCancel(ctx))
	x.renewing = stop
	x.renewed.Go(func() { x.renew(keep) })
	if err := b.awaitRunning(ctx, made); err != nil {
		return nil, err
	}
	if err := x.start(ctx, lease); err != nil {
		return nil, err
	}
	o := r.open
	o.Limits = r.limits
	x.inside, err = x.client.Open(ctx, o)
	return x, err
}

// create creates a sandbox. The API has no idempotency key, so before it repeats a request
// it checks whether the server has carried it out.
func (b *driver) create(ctx context.Context, lease string, r request) (made remote, err error) {
	overhead, err := execd.Overhead()
	if err != nil {
		return made, err
	}
	c := creation{
		Image: image{r.image}, Platform: platform{"linux", runtime.GOARCH}, Entrypoint: []string{"tail", "-f", "/dev/null"},
		Timeout: int(Lifetime / time.Second), Limits: resources(r.limits, overhead), Metadata: map[string]string{leaseKey: lease},
	}
	if r.owner != "" {
		maps.Copy(c.Metadata, map[string]string{ownerKey: ownerValue(r.owner), epochKey: strconv.FormatUint(r.epoch, 10)})
	}
	asked := false
	err = again(ctx, func() error {
		if asked {
			there, err := b.api.list(ctx, leaseKey, lease)
			if err != nil {
				return err
			}
			if len(there) > 0 {
				made = there[0]
				return nil
			}
		}
		asked = true
		var err error
		made, err = b.api.create(ctx, c)
		return err
	})
	if err != nil && transient(err) {
		// The sandbox may still be created. It is not renewed then, and ends.
		err = fmt.Errorf("%w; what the server makes of it ends within %v", err, Lifetime)
	}
	return made, err
}

// ownerValue encodes an owner as a value of metadata.
func ownerValue(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:16])
}

// resources encodes limits for the server, including the daemon's overhead.
func resources(l sandbox.Limits, overhead int64) map[string]string {
	m := map[string]string{}
	if l.CPU > 0 {
		m["cpu"] = strconv.FormatInt(int64(math.Ceil(l.CPU*1000)), 10) + "m"
	}
	if l.Memory > 0 {
		m["memory"] = strconv.FormatInt(l.Memory+overhead, 10)
	}
	return m
}

// awaitRunning waits until a sandbox runs. It waits for unknown states to pass.
func (b *driver) awaitRunning(ctx context.Context, r remote) error {
	last := r.Status
	err := poll(ctx, func() (bool, error) {
		switch last.State {
		case running:
			return true, nil
		case failed, stopping, terminated:
			return false, errors.New(last.Reason + " " + last.Message)
		}
		now, err := b.api.get(ctx, r.ID)
		if err == nil {
			last = now.Status
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("sandbox %s does not run, it is %q: %w", r.ID, last.State, err)
	}
	return nil
}

// renew extends the sandbox's life until ctx ends.
func (x *instance) renew(ctx context.Context) {
	tick := time.NewTicker(x.b.renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := x.b.api.renew(ctx, x.id, time.Now().Add(Lifetime))
		if statusOf(err) == http.StatusNotFound {
			return // it is gone; its commands notice by their connections
		}
		if err != nil && ctx.Err() == nil {
			x.b.log.Warn("a sandbox could not be renewed", "sandbox", x.id, "error", err)
		}
	}
}

// start uploads this program to the sandbox, starts it and becomes its holder.
func (x *instance) start(ctx context.Context, lease string) error {
	to, err := x.b.api.endpoint(ctx, x.id, execdPort, x.b.o.Proxied)
	if err != nil {
		return err
	}
	x.execd = to
	var last error
	if err := poll(ctx, func() (bool, error) { last = to.ping(ctx); return last == nil, nil }); err != nil {
		return fmt.Errorf("sandbox %s does not answer: %w: %w", x.id, err, last)
	}
	self, err := x.b.program()
	if err != nil {
		return err
	}
	defer self.Close()
	x.dir = x.b.dir(lease)
	program := path.Join(x.dir, execd.Name)
	if err := to.upload(ctx, program, self); err != nil {
		return err
	}
	keys, err := execd.NewKeys()
	if err != nil {
		return err
	}
	uid, err := prepare(ctx, to, x.dir)
	if err != nil {
		return err
	}
	id, err := to.background(ctx, command{
		UID: uid, GID: uid,
		Command: "exec " + strings.Join(execd.UpgradeCommand(quote(program)), " "),
		Envs:    map[string]string{execd.KeysVariable: string(keys.Daemon), execd.DirVariable: x.dir, "GOMEMLIMIT": "64MiB"},
	})
	if err != nil {
		return err
	}
	number, err := awaitPort(ctx, to, id)
	if err != nil {
		return err
	}
	daemon, err := x.b.api.endpoint(ctx, x.id, number, x.b.o.Proxied)
	if err != nil {
		return err
	}
	x.client, err = execd.DialUpgraded(ctx, keys, execd.DefaultLease, daemon.connect)
	return err
}

// user is the user of the daemon and the commands, where the server's own daemon is root.
const user = 65532

// prepare gives the directory to the user of the daemon, and returns that user, or nil for
// the user of the server's own daemon.
func prepare(ctx context.Context, to *port, dir string) (uid *int, err error) {
	script := fmt.Sprintf("if [ $(id -u) = 0 ]; then chown %d:%d %s && echo given; fi", user, user, quote(dir))
	err = to.run(ctx, command{Command: script}, func(e event) {
		if e.Type == "stdout" && strings.TrimSpace(e.Text) == "given" {
			uid = new(user)
		}
	})
	return uid, err
}

// quote quotes a word for the shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// awaitPort waits until a daemon prints its port.
func awaitPort(ctx context.Context, to *port, id string) (number int, err error) {
	all, cursor := "", "0"
	err = poll(ctx, func() (bool, error) {
		s, err := to.status(ctx, id)
		if err != nil {
			return false, err
		}
		text, next, err := to.logs(ctx, id, cursor)
		if err != nil {
			return false, err
		}
		if all, cursor = all+text, next; len(all) > mostEvent {
			return false, errors.New("it writes without end")
		}
		for line := range strings.Lines(all) {
			if n, ok := strings.CutPrefix(line, execd.PortLine); ok && strings.HasSuffix(n, "\n") {
				number, err = strconv.Atoi(strings.TrimSpace(n))
				if err != nil || number < 1 || number > math.MaxUint16 {
					err = fmt.Errorf("it listens at %q", n)
				}
				return true, err
			}
		}
		if !s.Running {
			return false, errors.New("it ended: " + s.Error)
		}
		return false, nil
	})
	if err != nil {
		return 0, fmt.Errorf("start the daemon of the sandbox: %w: %.500s", err, all)
	}
	return number, nil
}

// seeLimits prints the limits of a sandbox's control groups, of either version.
const seeLimits = `cd /sys/fs/cgroup
echo memory $(cat memory.max memory/memory.limit_in_bytes 2>/dev/null)
echo cpu $(cat cpu.max cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us 2>/dev/null)`

// limits returns the names of the limits that are set in the sandbox as requested.
func (x *instance) limits(ctx context.Context, asked sandbox.Limits) (held []string, err error) {
	overhead, err := execd.Overhead()
	if err != nil {
		return nil, err
	}
	err = x.execd.run(ctx, command{Command: seeLimits}, func(e event) {
		if e.Type != "stdout" {
			return
		}
		switch f := append(strings.Fields(e.Text), "", "", ""); f[0] {
		case "memory":
			if f[1] == strconv.FormatInt(asked.Memory+overhead, 10) {
				held = append(held, sandbox.LimitMemory)
			}
		case "cpu":
			quota, quotaErr := strconv.ParseFloat(f[1], 64)
			period, periodErr := strconv.ParseFloat(f[2], 64)
			if quotaErr == nil && periodErr == nil && quota > 0 && quota <= asked.CPU*period {
				held = append(held, sandbox.LimitCPU)
			}
		}
	})
	return held, err
}

// Client implements execd.Place.
func (x *instance) Client() *execd.Client { return x.client }

// Dir implements execd.Place.
func (x *instance) Dir() string { return path.Join(x.dir, execd.WorkspaceName) }

// Cause implements execd.Place. A server does not report a cause.
func (x *instance) Cause() (why string, outOfMemory bool) { return "sandbox " + x.id, false }

// Discard implements execd.Place. It waits for the renewal to stop.
func (x *instance) Discard() error {
	var err error
	if x.client != nil {
		err = x.client.Close()
	}
	if x.renewing != nil {
		x.renewing()
	}
	x.renewed.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), removePatience)
	defer cancel()
	return errors.Join(err, x.b.api.remove(ctx, x.id))
}

// errNewer is returned when a session has a sandbox of a later epoch.
var errNewer = errors.New("the session has a sandbox of a later epoch")

// supersede deletes the sandboxes of older epochs of an owner.
func (b *driver) supersede(ctx context.Context, owner string, epoch uint64) error {
	if owner == "" {
		return nil
	}
	all, err := b.api.list(ctx, ownerKey, ownerValue(owner))
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range all {
		n, err := strconv.ParseUint(r.Metadata[epochKey], 10, 64)
		switch {
		case err != nil:
		case n > epoch:
			return errNewer
		case n < epoch:
			errs = append(errs, b.api.remove(ctx, r.ID))
		}
	}
	return errors.Join(errs...)
}
