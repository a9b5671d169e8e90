package openai_test

import (
	"flag"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	// Those that run in parallel wait for deadlines more than they compute.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
