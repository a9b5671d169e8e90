package journal

import "testing"

func TestNamed(t *testing.T) {
	for _, tc := range []struct{ by, says, want string }{
		{"", "", ""},
		{"ana", "", "ana"},
		{"ana", "ana", "ana"},
		{"ana", "chief-executive", "ana (says to be chief-executive)"},
		{"", "chief-executive", "an unproved sender (says to be chief-executive)"},
		{"ana", "via web/api/k3v9", "ana, vouched for by web/api/k3v9"},
		{"ana", "Ana via web/page/s1", "ana (says to be Ana), vouched for by web/page/s1"},
		{"ana", "Ana via mail", "ana (says to be Ana via mail)"},
	} {
		if got := Named(tc.by, tc.says); got != tc.want {
			t.Errorf("by %q, says %q: %q, want %q", tc.by, tc.says, got, tc.want)
		}
	}
}
