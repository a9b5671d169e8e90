//go:build !engine

package docker

import (
	"flag"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	// Parallel tests mostly wait for deadlines.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
