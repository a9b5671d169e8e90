package journal

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestReadIsQuick: the data of no kind of event is left to encoding/json. The test
// detects it by the allocations of a read.
func TestReadIsQuick(t *testing.T) {
	for _, v := range []any{
		&WriterOpened{}, &Submitted{Task: wireTask{Branch: &Branch{}, ForkOf: &wireRef{}}}, &Claimed{}, &Released{}, &Review{}, &Resolved{}, &CancelRequested{},
		&Warning{}, &Ended{Parent: &Ancestor{}, Result: &session.Link{}}, &RunWaiting{For: []Wait{{}}}, &SignalReceived{Branch: &BranchEnd{}},
		&FanOut{Branches: []FanOutBranch{{}}}, &CacheWarmed{}, &BranchOutcomes{Branches: []run.BranchOutcome{{}}}, &Quarantined{}, &Rebudgeted{}, &Settled{Parent: &Ancestor{}}, &StepStarted{},
		&StepCompleted{Links: []session.Link{{}}},
	} {
		data := must.Get(canonical.Marshal(v))(t)
		read := func(with func(into any) error) float64 {
			return testing.AllocsPerRun(10, func() {
				if err := with(reflect.New(reflect.TypeOf(v).Elem()).Interface()); err != nil {
					t.Fatalf("%T: %v", v, err)
				}
			})
		}
		quick := read(func(into any) error { return session.Unmarshal(data, into) })
		slow := read(func(into any) error { return json.Unmarshal([]byte(data), into) })
		if quick >= slow {
			t.Errorf("%T: %v allocations, encoding/json %v", v, quick, slow)
		}
	}
}
