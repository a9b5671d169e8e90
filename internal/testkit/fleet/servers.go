//go:build linux

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rathcluster/rath/internal/nats/natsserver"
)

const (
	clientPort  = 4222
	routePort   = 6222
	monitorPort = 8222
)

// childEnv is set in a child process that is a NATS server, and identifies the server.
const childEnv = "RATH_FLEET_SERVER"

const (
	// ping is the interval after which a server detects a dead peer.
	ping = 2 * time.Second
	// serverEnd bounds the time in which a server must end after the request.
	serverEnd = 20 * time.Second
)

// Child runs a NATS server and exits, if a fleet started this process as one. Otherwise it
// returns at once.
func Child() {
	text := os.Getenv(childEnv)
	if text == "" {
		return
	}
	if err := serve(text); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(text string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var o natsserver.Options
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	o.Grant = rights
	s, err := natsserver.Start(ctx, &o)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, serverUp)
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.Background(), serverEnd)
	defer cancel()
	if o.Cluster != nil {
		return s.Retire(last)
	}
	return s.Shutdown(last)
}

const serverUp = "the NATS server is up"

// servers adds the NATS servers and starts them.
func (f *Fleet) startServers(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	hosts := make([]*host, f.o.Servers)
	var routes []string
	for i := range hosts {
		if hosts[i], err = f.network.host(); err != nil {
			return err
		}
		routes = append(routes, fmt.Sprintf("%s:%d", hosts[i].ip, routePort))
	}
	for i, h := range hosts {
		name := fmt.Sprintf("nats-%d", i)
		o := natsserver.Options{
			StoreDir: f.dir(name, "store"), Host: h.ip, Port: clientPort, MonitorPort: monitorPort, Name: name,
			NodePassword: f.nodePassword, OperatorPassword: f.operatorPassword, ToolPassword: f.toolPassword, PingInterval: ping, Lazy: f.o.Lazy,
			// The bound of streams' reservations; nothing is allocated.
			MaxStore: 64 << 30, MaxMemory: 4 << 30,
		}
		if len(hosts) > 1 {
			o.Cluster = &natsserver.Cluster{Name: "rath", Port: routePort, Routes: routes}
		}
		text, err := json.Marshal(&o)
		if err != nil {
			return err
		}
		p, err := f.add(name, h, serverUp, func() Program {
			return Program{Path: self, Env: []string{childEnv + "=" + string(text)}}
		})
		if err != nil {
			return err
		}
		f.servers = append(f.servers, p)
		if i < len(f.o.Disks) && f.o.Disks[i].Size > 0 {
			if err := f.insert(name, f.o.Disks[i]); err != nil {
				return err
			}
		}
		if err := p.Start(); err != nil {
			return err
		}
	}
	return f.ServersUp(ctx)
}

// ServersUp waits until all servers that run are up and, with several, agree
// on a leader.
func (f *Fleet) ServersUp(ctx context.Context) error {
	for _, p := range f.servers {
		if !p.Running() {
			continue
		}
		if err := p.Up(ctx); err != nil {
			return err
		}
		for {
			err := healthy(ctx, p)
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return err
			case <-p.Done():
				return errors.Join(fmt.Errorf("%w: %s; see %s", ErrNotRunning, p.Name, p.Log), err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

func healthy(ctx context.Context, p *Process) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// js-meta-only: whether the server knows the leader, not every stream.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d/healthz?js-meta-only=true", p.IP(), monitorPort), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("fleet: %s is not healthy: %w", p.Name, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("fleet: %s is not healthy: %s", p.Name, resp.Status)
	}
	return nil
}
