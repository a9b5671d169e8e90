package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"
)

// dockerEngine is an engine behind Docker's client. No other file imports the client.
type dockerEngine struct{ c *client.Client }

var _ engine = dockerEngine{}

// connect returns an engine at an address; "" is the address from the environment variables
// of Docker's own programs, or the socket of this machine. It sends no request yet.
func connect(host string) (engine, error) {
	opts := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if host != "" {
		opts = append(opts, client.WithHost(host))
	}
	c, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil, err
	}
	return dockerEngine{c}, nil
}

func (e dockerEngine) info(ctx context.Context) (about, error) {
	i, err := e.c.Info(ctx)
	if err != nil {
		return about{}, err
	}
	if versions.LessThan(e.c.ClientVersion(), oldestAPI) {
		return about{}, fmt.Errorf("%w: %s", errOldAPI, e.c.ClientVersion())
	}
	a := about{
		Version: i.ServerVersion, OS: i.OSType, Arch: i.Architecture, DefaultRuntime: i.DefaultRuntime,
		Memory: i.MemoryLimit, Swap: i.SwapLimit, CPU: i.CPUCfsQuota, PIDs: i.PidsLimit,
	}
	for name := range i.Runtimes {
		a.Runtimes = append(a.Runtimes, name)
	}
	for _, o := range i.SecurityOptions {
		a.Remapped = a.Remapped || strings.Contains(o, "name=userns") || strings.Contains(o, "name=rootless")
	}
	return a, nil
}

func (e dockerEngine) image(ctx context.Context, ref string) (id string, err error) {
	i, err := e.c.ImageInspect(ctx, ref)
	if cerrdefs.IsNotFound(err) {
		return "", errNotFound
	}
	return i.ID, err
}

func (e dockerEngine) importImage(ctx context.Context, tar io.Reader, ref string) error {
	r, err := e.c.ImageImport(ctx, image.ImportSource{Source: tar, SourceName: "-"}, ref, image.ImportOptions{})
	if err != nil {
		return err
	}
	defer r.Close()
	for d := json.NewDecoder(r); ; {
		var line struct{ Error string }
		if err := d.Decode(&line); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if line.Error != "" {
			return errors.New(line.Error)
		}
	}
}

func (e dockerEngine) create(ctx context.Context, c containerSpec) (id string, err error) {
	pids := c.PIDs
	host := &container.HostConfig{
		AutoRemove:     true,
		NetworkMode:    "none",
		IpcMode:        "none",
		Runtime:        c.Runtime,
		ReadonlyRootfs: true,
		CapDrop:        []string{"ALL"},
		CapAdd:         c.Caps,
		SecurityOpt:    []string{"no-new-privileges"},
		LogConfig:      container.LogConfig{Type: "none"},
		Tmpfs:          c.Tmpfs,
		Resources: container.Resources{
			Memory: c.Memory, MemorySwap: c.Memory, NanoCPUs: int64(c.CPU * 1e9), PidsLimit: &pids,
			Ulimits: []*container.Ulimit{{Name: "core", Soft: 0, Hard: 0}},
		},
	}
	for _, b := range c.Binds {
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: b.Source, Target: b.Target, ReadOnly: b.ReadOnly})
	}
	r, err := e.c.ContainerCreate(ctx, &container.Config{
		Image: c.Image, User: "0:0", Entrypoint: c.Command, Env: c.Env, Hostname: "sandbox",
		NetworkDisabled: true, WorkingDir: "/", Labels: c.Labels, Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}, host, nil, nil, c.Name)
	if err == nil && r.ID == "" {
		err = errNoEngine
	}
	return r.ID, err
}

func (e dockerEngine) start(ctx context.Context, id string) error {
	return e.c.ContainerStart(ctx, id, container.StartOptions{})
}

// removals bounds how often a removal that left files is repeated, after pauses that double.
const (
	removals     = 5
	removalPause = 100 * time.Millisecond
)

// remove kills the processes of a container and removes it. A missing container is no
// error. If the engine is already removing the container, because its processes have ended,
// remove waits. A busy engine can write a file of the container while it removes its files,
// and then has removed all but the directory: remove asks again.
func (e dockerEngine) remove(ctx context.Context, id string) error {
	err := e.c.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	for again := range removals {
		if err == nil || !strings.Contains(err.Error(), "directory not empty") {
			break
		}
		select {
		case <-time.After(removalPause << again):
		case <-ctx.Done():
			return err
		}
		err = e.c.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	}
	if cerrdefs.IsConflict(err) && strings.Contains(err.Error(), "already in progress") {
		removed, failed := e.c.ContainerWait(ctx, id, container.WaitConditionRemoved)
		select {
		case <-removed:
			return nil
		case err = <-failed:
		}
	}
	if cerrdefs.IsNotFound(err) {
		return nil
	}
	return err
}

func (e dockerEngine) rename(ctx context.Context, id, name string) error {
	return e.c.ContainerRename(ctx, id, name)
}

func (e dockerEngine) running(ctx context.Context, id string) (bool, error) {
	c, err := e.c.ContainerInspect(ctx, id)
	if cerrdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return c.State != nil && c.State.Running, nil
}

func (e dockerEngine) list(ctx context.Context, label string) ([]listed, error) {
	all, err := e.c.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", label))})
	if err != nil {
		return nil, err
	}
	var out []listed
	for _, c := range all {
		if len(c.Names) > 0 {
			out = append(out, listed{ID: c.ID, Name: strings.TrimPrefix(c.Names[0], "/"), Labels: c.Labels, Created: time.Unix(c.Created, 0)})
		}
	}
	return out, nil
}

func (e dockerEngine) address() string { return e.c.DaemonHost() }

func (e dockerEngine) class(err error) (gone, denied bool) {
	return cerrdefs.IsNotFound(err), cerrdefs.IsPermissionDenied(err) || cerrdefs.IsUnauthorized(err)
}
