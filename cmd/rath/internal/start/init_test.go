package start

import (
	"runtime/debug"
	"testing"
)

// TestRequired: a module that rath writes requires a published version. Go stamps a
// build in a checkout with a version, too, which may be on this machine alone.
func TestRequired(t *testing.T) {
	for _, c := range []struct {
		version  string
		vcs      bool
		checkout bool
		required string
	}{
		{"devel", false, true, ""},
		{"v0.0.0-20260102030405-0123456789ab", true, true, ""},
		{"v0.0.0-20260102030405-0123456789ab+dirty", true, true, ""},
		{"v1.2.4-0.20260102030405-0123456789ab", true, true, ""},
		{"v1.2.3+dirty", true, true, ""},
		{"v1.2.3", true, true, "v1.2.3"},
		{"v1.3.0-rc.1", true, true, "v1.3.0-rc.1"},
		{"v1.2.3", false, false, "v1.2.3"}, // go install MODULE@v1.2.3
		{"v0.0.0-20260102030405-0123456789ab", false, false, "v0.0.0-20260102030405-0123456789ab"},
	} {
		info := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "-compiler", Value: "gc"}}}
		if c.vcs {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: "vcs", Value: "git"})
		}
		if got := inCheckout(info, c.version); got != c.checkout {
			t.Errorf("%s, vcs %t: in a checkout %t", c.version, c.vcs, got)
		}
		if got := required(info, c.version); got != c.required {
			t.Errorf("%s, vcs %t: requires %q, want %q", c.version, c.vcs, got, c.required)
		}
	}
}
