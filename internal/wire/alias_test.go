package wire

import (
	"encoding/json"
	"testing"

	"github.com/rathcluster/rath/internal/journal"
)

// TestFormerCancel: a former release noted the claim of who cancels as by.
func TestFormerCancel(t *testing.T) {
	var a Alias
	if err := json.Unmarshal([]byte(`{"cancelled":{"by":"ana","reason":"r","run":"r1"}}`), &a); err != nil || a.Cancelled.By != "" || a.Cancelled.Says != "ana" {
		t.Errorf("%+v, %v", a.Cancelled, err)
	}
	var b, c Alias
	b.Cancel(&journal.CancelRequested{By: "ana", Says: "ann", Run: "r1"})
	data, err := json.Marshal(b)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil || *c.Cancelled != *b.Cancelled {
		t.Errorf("%s is read as %+v, %v", data, c.Cancelled, err)
	}
}
