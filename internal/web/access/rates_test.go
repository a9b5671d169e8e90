package access

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestRates refuses the requests of a token that sends too many, and no other's.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRates()
		taken := func(key string) (n int) {
			for r.take(key) == 0 {
				n++
			}
			return n
		}
		if n := taken("busy"); n != rateBurst {
			t.Errorf("%d requests at once", n)
		}
		if wait := r.take("busy"); wait <= 0 || wait > time.Second/rateEach {
			t.Errorf("the next one waits for %v", wait)
		}
		if n := taken("calm"); n != rateBurst {
			t.Errorf("%d requests of another token", n)
		}
		time.Sleep(time.Second)
		if n := taken("busy"); n != rateEach {
			t.Errorf("%d requests after a second", n)
		}
		time.Sleep(time.Hour)
		if n := taken("busy"); n != rateBurst {
			t.Errorf("%d requests after an hour", n)
		}
		for i := range rateKeys + 1 { // what is remembered is bounded
			r.take(string(rune(i)) + "x")
		}
		if len(r.all) > rateKeys {
			t.Errorf("%d tokens are remembered", len(r.all))
		}
	})
}
