package conn

import "testing"

// TestStoredAs reads acknowledgements as servers write them. The decoder handles all that
// are not simply "stored".
func TestStoredAs(t *testing.T) {
	for ack, want := range map[string]uint64{
		`{"stream":"EV_1_0","seq":7}`:                      7,
		`{"stream":"EV_1_0","seq":18446744073709551615}`:   1<<64 - 1,
		`{"stream":"EV_1_0","seq":18446744073709551616}`:   0,
		`{"stream":"EV_1_0","seq":0}`:                      0,
		`{"stream":"EV_1_0","seq":-7}`:                     0,
		`{"stream":"EV_1_0","seq":7`:                       0,
		`{"stream":"EV_1_0","seq":7}}`:                     0,
		`{"stream":"EV_1_0","seq":7,"duplicate": true}`:    0,
		`{"stream":"EV_1_0","domain":"d","seq":7}`:         0,
		`{"stream":"EV\\","seq":7}`:                        0,
		`{"error":{"code":400},"stream":"EV_1_0","seq":0}`: 0,
		`{"stream":"EV_1_0"}`:                              0,
		``:                                                 0,
	} {
		if got := storedAs([]byte(ack)); got != want {
			t.Errorf("%s: %d, want %d", ack, got, want)
		}
	}
}
