package cluster

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The library's lines are logged as ours: at the level that fits an operator, with
// rejections explained once per node and minute.
func TestLibraryLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct{ line, want string }{
			{"[DEBUG] memberlist: Initiating push/pull sync", ""},
			{"[INFO] memberlist: Suspect x has failed, no acks received", ""},
			{"[WARN] memberlist: Refuting a suspect message (from: x)", "INFO cluster: Refuting a suspect message (from: x)"},
			{"[ERR] memberlist: Failed fallback TCP ping: timeout", "INFO cluster: Failed fallback TCP ping: timeout"},
			{"[ERR] memberlist: Decrypt packet failed: no key from=10.0.0.1:5", "WARN cluster: refused a node: the cluster key differs or the message was damaged from=10.0.0.1:5"},
			{`[ERR] memberlist: discarding stream with unacceptable label "x": from=10.0.0.1:5`, "WARN cluster: refused a node: the cluster label differs from=10.0.0.1:5"},
			{"[WARN] memberlist: ignoring alive message for 'x': the protocol differs: node x", "WARN cluster: refused a node: the protocol differs: node x"},
			{"[WARN] memberlist: ignoring alive message for 'x': \"x\" at a is no node of Rath", "WARN cluster: refused a node: ignoring alive message for 'x': \"x\" at a is no node of Rath"},
			{"Err: Could not set the deadline: x", ""},
		} {
			got := &logged{}
			newLibraryLog(slog.New(got)).Print(tc.line)
			if got.String() != tc.want {
				t.Errorf("%q\nlogged %q\nwant   %q", tc.line, got, tc.want)
			}
		}

		got := &logged{}
		log := newLibraryLog(slog.New(got))
		for i := range 180 {
			log.Printf("[ERR] memberlist: Decrypt packet failed: x from=10.0.0.1:%d", i)
			log.Printf("[ERR] memberlist: Decrypt packet failed: x from=10.0.0.2:%d", i)
			time.Sleep(time.Second)
		}
		if n := strings.Count(got.String(), "10.0.0.1:"); n != 3 {
			t.Errorf("%d lines of one node in three minutes", n)
		}
		if n := strings.Count(got.String(), "10.0.0.2:"); n != 3 {
			t.Errorf("%d lines of another node in three minutes", n)
		}
	})
}
