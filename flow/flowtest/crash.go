package flowtest

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/session"
)

// moment is the time of a process's death around a commit.
type moment int

const (
	beforeStore moment = iota + 1 // no commit is stored
	afterStore                    // the commit is stored, and the process gets no reply
	afterReply                    // the commit is stored and acknowledged
)

func (m moment) String() string {
	return [...]string{"", "before", "after storing", "right after"}[m]
}

var errDead = errors.New("flowtest: the process is dead")

// crashLog is the log of a process that dies at its at-th append: from then on none of
// its operations reaches the log. With at zero it only counts.
type crashLog struct {
	commitlog.Log
	at   int
	when moment

	died func() // called when it happens

	mu      sync.Mutex
	appends int
	dead    bool
}

func (c *crashLog) Append(ctx context.Context, at commitlog.Position, commit commitlog.Commit) (commitlog.Position, error) {
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return commitlog.Position{}, errors.Join(errDead, session.ErrUnavailable)
	}
	c.appends++
	hit := c.appends == c.at
	if hit {
		c.dead = true
	}
	c.mu.Unlock()
	if hit && c.died != nil {
		defer c.died()
	}
	if hit && c.when == beforeStore {
		return commitlog.Position{}, errors.Join(errDead, session.ErrUnavailable)
	}
	pos, err := c.Log.Append(ctx, at, commit)
	if hit && c.when == afterStore {
		return commitlog.Position{}, errors.Join(errDead, session.ErrUnavailable)
	}
	return pos, err
}

func (c *crashLog) Read(ctx context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	if c.gone() {
		return func(yield func(commitlog.Entry, error) bool) { yield(commitlog.Entry{}, errDead) }
	}
	return c.Log.Read(ctx, k, after)
}

func (c *crashLog) Last(ctx context.Context, k session.Key) (commitlog.Entry, error) {
	if c.gone() {
		return commitlog.Entry{}, errDead
	}
	return c.Log.Last(ctx, k)
}

func (c *crashLog) gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}
