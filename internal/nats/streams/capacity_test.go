package streams

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

func TestFillRoom(t *testing.T) {
	for _, tc := range []struct {
		fill Fill
		want Room
	}{
		{Fill{}, RoomAll},
		{Fill{Bytes: 1 << 40}, RoomAll}, // no limit
		{Fill{Bytes: 1 << 40, Max: -1}, RoomAll},
		{Fill{Bytes: 849, Max: 1000}, RoomAll},
		{Fill{Bytes: 850, Max: 1000}, RoomOpen},
		{Fill{Bytes: 949, Max: 1000}, RoomOpen},
		{Fill{Bytes: 950, Max: 1000}, RoomEnds},
		{Fill{Bytes: 5000, Max: 1000}, RoomEnds}, // the limit was lowered
		{Fill{Bytes: 1 << 62, Max: 1 << 62}, RoomEnds},
		{Fill{Bytes: 1, Max: 1}, RoomEnds},
	} {
		if got := tc.fill.Room(); got != tc.want {
			t.Errorf("%d of %d: %s, want %s", tc.fill.Bytes, tc.fill.Max, got, tc.want)
		}
	}
}

func TestFillRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		bytes uint64
		held  TenantUsage
		want  bool
	}{
		"the stream has room":        {699, TenantUsage{Bytes: 690}, false},
		"more than half":             {700, TenantUsage{Bytes: 351}, true},
		"half":                       {700, TenantUsage{Bytes: 350}, false},
		"the only tenant":            {800, TenantUsage{Bytes: 800, Alone: true}, false},
		"a tenant that holds little": {849, TenantUsage{Bytes: 1}, false},
	} {
		if got := (Fill{Bytes: tc.bytes, Max: 1000}).refuses(tc.held); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestDiskRoom(t *testing.T) {
	for _, tc := range []struct {
		disk Disk
		want Room
	}{
		{Disk{}, RoomAll}, // not looked at yet
		{Disk{Free: 200, Kept: 100}, RoomAll},
		{Disk{Free: 199, Kept: 100}, RoomOpen},
		{Disk{Free: 99, Kept: 100}, RoomEnds},
		{Disk{Free: 49, Kept: 100}, RoomNone},
		{Disk{Free: 1 << 40, Kept: 100, Failed: "input/output error"}, RoomNone},
	} {
		if got := tc.disk.Room(); got != tc.want {
			t.Errorf("%+v: %s, want %s", tc.disk, got, tc.want)
		}
	}
}

// TestClocksApart: a node logs once that the clock of its machine is days from the
// server's, by how much, and when that is over.
func TestClocksApart(t *testing.T) {
	for days, says := range map[int]string{-2: "ahead=48h0m0s", 3: "ahead=-72h0m0s"} {
		synctest.Test(t, func(t *testing.T) {
			var said strings.Builder
			w, o := &natstest.Wire{}, nodeOptions(natstest.Start(t, nil))
			o.Dialer, o.Logger = w.Through(o.Dialer), slog.New(slog.NewTextHandler(&said, nil))
			c := dial(t, o)
			must.Do(t, c.Provision(t.Context()))
			stop := natstest.Background(t, c.Capacity.WatchRoom)
			time.Sleep(3 * lookEvery)
			w.Set(natstest.Days(days), nil)
			time.Sleep(3 * lookEvery)
			w.Set(nil, nil)
			time.Sleep(3 * lookEvery)
			stop()
			log := said.String()
			if strings.Count(log, "NATS server differ") != 1 || !strings.Contains(log, says) || strings.Count(log, "in step again") != 1 {
				t.Errorf("%d days: it says %s, want %s once", days, log, says)
			}
		})
	}
}
