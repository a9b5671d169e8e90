package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
)

// answerLast bounds how long a desk that closes goes on answering what was asked
// before. Then who asked is refused: most of it another node can answer.
const answerLast = 2 * time.Second

// desk is where requests are answered. Those that were taken are answered although
// the services of the node end: close stops the desk's and waits.
type desk struct {
	ctx      context.Context // of its services
	refuse   context.CancelFunc
	services []*conn.Service
}

func newDesk(ctx context.Context) *desk {
	d := &desk{}
	d.ctx, d.refuse = context.WithCancel(context.WithoutCancel(ctx))
	return d
}

func (d *desk) add(s *conn.Service) { d.services = append(d.services, s) }

// close takes no more requests and returns when those that were taken are answered
// or refused. A nil desk has none.
func (d *desk) close() error {
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
