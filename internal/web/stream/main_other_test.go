//go:build !linux

package stream_test

import (
	"testing"

	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/sandbox/local"
)

func TestMain(m *testing.M) {
	local.Reexec()
	natstest.Main(m)
}
