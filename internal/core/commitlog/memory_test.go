package commitlog_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/session"
)

func TestMemory(t *testing.T) {
	sessiontest.TestLog(t, func(*testing.T) commitlog.Log { return &commitlog.Memory{} })
}

func TestMemoryKeys(t *testing.T) {
	var log commitlog.Memory
	want := []session.Key{{Tenant: "a", ID: "2"}, {Tenant: "a", ID: "s"}, {Tenant: "b", ID: "s"}}
	for _, i := range []int{2, 0, 1} {
		must.Get(log.Append(t.Context(), commitlog.Position{}, sessiontest.Next(want[i], commitlog.Position{}, session.ChunkEvent(session.UserText("x")))))(t)
	}
	if diff := cmp.Diff(want, log.Keys()); diff != "" {
		t.Error(diff)
	}
	for range log.Read(t.Context(), want[0], commitlog.Position{Seq: math.MaxUint64}) {
		t.Error("there are commits after the last position there could be")
	}
}
