package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
)

// answerLast bounds how long a closing service group keeps answering earlier requests.
// Later ones are rejected: another node can answer most of them.
const answerLast = 2 * time.Second

// serviceGroup is a set of services that close together. Requests that they have
// accepted are answered although the services of the node end: close stops the services
// of the group and waits.
type serviceGroup struct {
	ctx      context.Context // of the services
	refuse   context.CancelFunc
	services []*conn.Service
}

func newServiceGroup(ctx context.Context) *serviceGroup {
	d := &serviceGroup{}
	d.ctx, d.refuse = context.WithCancel(context.WithoutCancel(ctx))
	return d
}

// add adds a service, unless it did not start.
func (d *serviceGroup) add(s *conn.Service, err error) error {
	if err == nil {
		d.services = append(d.services, s)
	}
	return err
}

// close accepts no more requests and returns when the accepted ones are answered or
// rejected. A nil group has none.
func (d *serviceGroup) close() error {
	if d == nil {
		return nil
	}
	last := time.AfterFunc(answerLast, d.refuse)
	defer last.Stop()
	defer d.refuse()
	errs := make([]error, len(d.services))
	var closing sync.WaitGroup
	for i, s := range d.services {
		closing.Go(func() { errs[i] = s.Stop() })
	}
	closing.Wait()
	return errors.Join(errs...)
}
