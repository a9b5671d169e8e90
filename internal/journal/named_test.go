package journal

import (
	"testing"

	"github.com/rathcluster/rath/session"
)

// TestFormerBy: what events of schema 1 say by is a claim.
func TestFormerBy(t *testing.T) {
	for kind, read := range map[string]func(session.Event) (by, says string){
		KindCancel:         func(e session.Event) (string, string) { v, _ := Decode[CancelRequested](e); return v.By, v.Says },
		KindResolved:       func(e session.Event) (string, string) { v, _ := Decode[Resolved](e); return v.By, v.Says },
		KindSignalReceived: func(e session.Event) (string, string) { v, _ := Decode[SignalReceived](e); return v.By, v.Says },
		KindQuarantined:    func(e session.Event) (string, string) { v, _ := Decode[Quarantined](e); return v.By, v.Says },
		KindRebudgeted:     func(e session.Event) (string, string) { v, _ := Decode[Rebudgeted](e); return v.By, v.Says },
	} {
		if by, says := read(session.Event{Kind: kind, Schema: 1, Data: `{"by":"ana"}`}); by != "" || says != "ana" {
			t.Errorf("%s of schema 1: by %q, says %q", kind, by, says)
		}
		if by, says := read(session.Event{Kind: kind, Schema: 2, Data: `{"by":"ana","says":"ann"}`}); by != "ana" || says != "ann" {
			t.Errorf("%s of schema 2: by %q, says %q", kind, by, says)
		}
		if e := event(kind, &Quarantined{}); e.Schema != 2 {
			t.Errorf("%s is written with schema %d", kind, e.Schema)
		}
	}
}

func TestNamed(t *testing.T) {
	for _, tc := range []struct{ by, says, want string }{
		{"", "", ""},
		{"ana", "", "ana"},
		{"ana", "ana", "ana"},
		{"ana", "chief-executive", "ana (says to be chief-executive)"},
		{"", "chief-executive", "an unproved sender (says to be chief-executive)"},
	} {
		if got := Named(tc.by, tc.says); got != tc.want {
			t.Errorf("by %q, says %q: %q, want %q", tc.by, tc.says, got, tc.want)
		}
	}
}
