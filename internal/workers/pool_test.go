package workers_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/workers"
)

// TestPool runs as much at once as it is asked to, keeps some of the goroutines for a
// while, and ends when all that was run has returned.
func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := workers.New()
		before := runtime.NumGoroutine()
		const n = 200
		var all sync.WaitGroup
		all.Add(n)
		for range n {
			p.Run(func() {
				all.Done()
				all.Wait() // for all others
			})
		}
		synctest.Wait()
		kept := runtime.NumGoroutine() - before
		if kept <= 0 || kept >= n {
			t.Errorf("%d goroutines are kept after %d functions at once", kept, n)
		}
		again := make(chan struct{})
		p.Run(func() { <-again })
		if now := runtime.NumGoroutine() - before; now != kept {
			t.Errorf("%d goroutines, of which %d are kept, run one more function", now, kept)
		}
		close(again)
		time.Sleep(time.Minute)
		if left := runtime.NumGoroutine() - before; left != 0 {
			t.Errorf("%d goroutines are kept after a minute", left)
		}
		var ended atomic.Bool
		p.Run(func() {
			time.Sleep(time.Second)
			ended.Store(true)
		})
		p.End()
		if !ended.Load() {
			t.Error("the pool ended before what it ran")
		}
	})
}
