package cluster

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Ended incarnations are remembered within a bound, the newest for longest, and
// forgotten ones still count as dead.
func TestForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		v.put(Node{Incarnation: "stays"})
		time.Sleep(grace)
		for i := range maxGone + 100 {
			inc := fmt.Sprint("n-", i)
			v.put(Node{Incarnation: inc})
			time.Sleep(time.Millisecond)
			v.remove(inc)
		}
		if len(v.gone) != maxGone {
			t.Errorf("%d are remembered", len(v.gone))
		}
		if _, ok := v.gone["n-99"]; ok {
			t.Error("an old one is remembered")
		}
		for _, inc := range []string{"n-0", fmt.Sprint("n-", maxGone+99)} {
			if alive, known := v.known(inc); alive || !known {
				t.Errorf("%s: alive %v, known %v", inc, alive, known)
			}
		}
		v.remove("never there")
		if len(v.live) != 1 {
			t.Errorf("%d live", len(v.live))
		}
	})
}

// The list is a copy.
func TestListIsACopy(t *testing.T) {
	v := newView()
	v.put(Node{Incarnation: "n", Pools: []string{"a"}})
	v.list()[1].Pools[0] = "changed"
	if got := v.list()[1].Pools[0]; got != "a" {
		t.Errorf("the pool is %q", got)
	}
}
