package natsbus

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestLane carries out more pieces than a lane does at once: as many at once as
// it says and never more, all of them, and none is begun late without being told.
func TestLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const atOnce, waiting = 3, 5
		l := newLane(atOnce, waiting)
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		done := make(chan time.Duration, 32)
		late := 0
		piece := func(isLate bool) {
			if isLate {
				late++ // nothing else runs then: fake time stands still
				return
			}
			time.Sleep(time.Second)
			done <- time.Since(began)
		}
		for range atOnce + waiting {
			if err := l.take(ctx, piece); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("what there was room for was taken after %v", d)
		}
		if err := l.take(ctx, piece); err != nil || time.Since(began) != time.Second {
			t.Errorf("one more was taken after %v: %v; want after a second", time.Since(began), err)
		}
		l.wait()
		close(done)
		var at []time.Duration
		for d := range done {
			at = append(at, d)
		}
		slices.Sort(at)
		for i, d := range at {
			if want := time.Duration(i/atOnce+1) * time.Second; d != want {
				t.Errorf("piece %d was done after %v, want %v", i, d, want)
			}
		}
		if len(at) != atOnce+waiting+1 || late != 0 {
			t.Errorf("%d pieces were done, %d told that they are late", len(at), late)
		}

		// What waits when ctx ends is told; what is under way goes on.
		done = make(chan time.Duration, 32)
		for range atOnce + 1 {
			if err := l.take(ctx, piece); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		cancel()
		l.wait()
		if len(done) != atOnce || late != 1 {
			t.Errorf("%d pieces were done and %d late, want %d and 1", len(done), late, atOnce)
		}
		full := newLane(1, 0)
		_ = full.take(t.Context(), func(bool) { time.Sleep(time.Second) })
		if err := full.take(ctx, piece); err == nil {
			t.Error("a piece was taken for a context that had ended")
		}
		full.wait()
	})
}
