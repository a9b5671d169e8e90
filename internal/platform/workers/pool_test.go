package workers_test

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/platform/workers"
)

// TestPool runs as much at once as it is asked to, keeps some of the goroutines for a
// while, and ends when all that was run has returned.
func TestPool(t *testing.T) {
	stacks := make([]byte, 1<<20)
	goroutines := func() int {
		synctest.Wait()
		return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "workers.(*Pool).Run.func1(")
	}
	synctest.Test(t, func(t *testing.T) {
		p := workers.New()
		const n = 200
		var all sync.WaitGroup
		all.Add(n)
		for range n {
			p.Run(func() {
				all.Done()
				all.Wait() // for all others
			})
		}
		kept := goroutines()
		if kept == 0 || kept >= n {
			t.Errorf("%d goroutines are kept after %d functions at once", kept, n)
		}
		again := make(chan struct{})
		p.Run(func() { <-again })
		if now := goroutines(); now != kept {
			t.Errorf("%d goroutines, of which %d are kept, run one more function", now, kept)
		}
		close(again)
		time.Sleep(time.Minute)
		if left := goroutines(); left != 0 {
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
