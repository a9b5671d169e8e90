package sandbox_test

import (
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

func TestParseLimits(t *testing.T) {
	for text, want := range map[string]sandbox.Limits{
		"":                                       {},
		"memory=16m":                             {Memory: 16 << 20},
		"memory=512m,cpus=1.5,disk=2g,pids=200":  {Memory: 512 << 20, CPU: 1.5, Disk: 2 << 30, PIDs: 200},
		" pids=4 , disk=1048576 , memory=20480K": {Memory: 20 << 20, Disk: 1 << 20, PIDs: 4},
	} {
		if got, err := sandbox.ParseLimits(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"memory", "memory=", "memory=1", "memory=-1g", "memory=1gb", "memory=1.5g", "memory=99999999999g", "memory=64m,memory=64m",
		"cpus=0", "cpus=NaN", "cpus=Inf", "cpus=-1", "cpus=x", "disk=0", "pids=1", "pids=1.5", "pids=99999999", "swap=1g", ",", "memory=64m,",
	} {
		if got, err := sandbox.ParseLimits(text); err == nil || !strings.Contains(err.Error(), "memory=512m,cpus=1.5") {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
}

// TestLimitsText: limits parse back from their text, and a node's bounds apply to them.
func TestLimitsText(t *testing.T) {
	for _, text := range []string{"", "cpus=1.5,disk=2g,memory=512m,pids=200", "memory=16777217", "disk=1025k", "pids=1024", "cpus=0.01"} {
		l, err := sandbox.ParseLimits(text)
		if err != nil || l.String() != text {
			t.Errorf("%q writes as %q, %v", text, l, err)
		}
	}
	node := sandbox.Limits{Memory: 1 << 30, CPU: 2}
	for _, tt := range []struct {
		asked, within, most string
	}{
		{"", "cpus=2,memory=1g", "cpus=2,memory=1g"},
		{"memory=512m,disk=1g", "cpus=2,disk=1g,memory=512m", "cpus=2,disk=1g,memory=512m"},
		{"memory=2g", "", "cpus=2,memory=1g"},
		{"cpus=3", "", "cpus=2,memory=1g"},
	} {
		l, err := sandbox.ParseLimits(tt.asked)
		must.Do(t, err)
		got, err := l.Within(node)
		if (err == nil) != (tt.within != "") || err == nil && got.String() != tt.within {
			t.Errorf("%q within %q is %q, %v", tt.asked, node, got, err)
		}
		if got := l.AtMost(node).String(); got != tt.most {
			t.Errorf("%q at most %q is %q, want %q", tt.asked, node, got, tt.most)
		}
	}
}
