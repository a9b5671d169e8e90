//go:build engine

package docker_test

import (
	"os"
	"testing"

	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/docker"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
)

// These tests need an engine (DOCKER_HOST) and the tar of an image (RATH_SANDBOX_IMAGE_TAR,
// see .ci/engine, which starts the one and makes the other). Without them they fail.
func TestMain(m *testing.M) {
	docker.Reexec()
	sandboxtest.Probe()
	os.Exit(m.Run())
}

// image is what the tar is imported as.
const image = "rath-sandbox:test"

func backend(t testing.TB) *docker.Backend {
	t.Helper()
	tar := os.Getenv("RATH_SANDBOX_IMAGE_TAR")
	if tar == "" {
		t.Fatal("RATH_SANDBOX_IMAGE_TAR names no image: run the tests with .ci/engine")
	}
	return docker.New(&docker.Options{State: t.TempDir(), Image: image, ImageTar: tar})
}

func TestConformance(t *testing.T) {
	sandboxtest.TestBackend(t, func(t *testing.T) sandbox.Backend { return backend(t) })
}
