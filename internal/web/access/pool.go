package access

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/session"
)

// Connect connects a client of a tenant with credentials of the role gateway.
type Connect func(ctx context.Context, t session.Tenant) (*client.Client, error)

const (
	// maxTenants bounds the connections of a gateway, one for each tenant.
	maxTenants = 256
	// connectWithin bounds the first connect of a tenant's client, which does not end with
	// the request that needs it: others may wait for the same.
	connectWithin = 10 * time.Second
	// connectAgain is the least time between attempts of a tenant.
	connectAgain = time.Second
)

// pool has one connection for each tenant. A connection that no request uses makes room for
// another tenant's.
type pool struct {
	connect Connect

	work sync.WaitGroup

	mu  sync.Mutex
	all map[session.Tenant]*pooled
}

type pooled struct {
	ready  chan struct{} // closed when client or err is set
	client *client.Client
	err    error
	users  int
	used   time.Time
}

func newPool(c Connect) *pool { return &pool{connect: c, all: map[session.Tenant]*pooled{}} }

// errTooMany is the error of a gateway that has all its connections in use.
var errTooMany = errors.New("access: the requests of too many tenants are open at this gateway")

// client returns the client of a tenant, which the caller releases.
func (p *pool) client(ctx context.Context, t session.Tenant) (*client.Client, func(), error) {
	p.mu.Lock()
	c := p.all[t]
	if c != nil && c.err != nil && c.users == 0 && time.Since(c.used) > connectAgain {
		delete(p.all, t)
		c = nil
	}
	if c == nil {
		if len(p.all) >= maxTenants && !p.evict() {
			p.mu.Unlock()
			return nil, nil, errTooMany
		}
		c = &pooled{ready: make(chan struct{}), used: time.Now()}
		p.all[t] = c
		connecting, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectWithin)
		p.work.Go(func() { // ends within connectWithin
			defer cancel()
			made, err := p.connect(connecting, t)
			p.mu.Lock()
			defer p.mu.Unlock()
			if c.client, c.err = made, err; p.all[t] != c && made != nil { // the pool was closed
				c.client, c.err = nil, errors.Join(errClosed, made.Close())
			}
			close(c.ready)
		})
	}
	c.users++
	p.mu.Unlock()
	release := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		c.users--
		c.used = time.Now()
	}
	select {
	case <-c.ready:
		if c.err != nil {
			release()
			return nil, nil, fmt.Errorf("access: connect for tenant %s: %w", t, c.err)
		}
		return c.client, release, nil
	case <-ctx.Done():
		release()
		return nil, nil, ctx.Err()
	}
}

var errClosed = errors.New("access: the gateway has ended")

// evict closes the connection that was idle for the longest time.
func (p *pool) evict() bool {
	var oldest session.Tenant
	for t, c := range p.all {
		if c.users == 0 && (oldest == "" || c.used.Before(p.all[oldest].used)) {
			oldest = t
		}
	}
	if oldest == "" {
		return false
	}
	c := p.all[oldest]
	delete(p.all, oldest)
	if c.client != nil {
		p.work.Go(func() { _ = c.client.Close() }) // bounded by its drain
	}
	return true
}

// close closes all connections.
func (p *pool) close() {
	p.mu.Lock()
	all := p.all
	p.all = map[session.Tenant]*pooled{}
	p.mu.Unlock()
	for _, c := range all {
		select {
		case <-c.ready:
			if c.client != nil {
				_ = c.client.Close() // it ends with the gateway
			}
		default:
		}
	}
	p.work.Wait()
}
