package sandbox_test

import (
	"strings"
	"testing"

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
