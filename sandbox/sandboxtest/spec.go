package sandboxtest

import (
	"errors"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// testResolve: the result of Resolve holds for the sandbox that Open opens, also when it is
// opened by the digest of an image that Resolve returned.
func testResolve(t *testing.T, s *suite) {
	info, err := s.backend.Resolve(t.Context(), sandbox.Spec{MinIsolation: s.caps.Isolation})
	must.Do(t, err)
	if info.Isolation != s.caps.Isolation || info.WholeTree != s.caps.WholeTree || info.Limits != (sandbox.Limits{}) || info.Network == "" {
		t.Errorf("Resolve says %+v, Probe said %+v", info, s.caps)
	}
	if !slices.Contains(s.caps.Networks, info.Network.Kind()) || s.caps.Networks[0] != info.Network.Kind() {
		t.Errorf("the network is %q without one asked for, Probe named %q", info.Network, s.caps.Networks)
	}
	if (info.Image != "") != s.caps.Images {
		t.Errorf("the image is %q, images can be asked for: %t", info.Image, s.caps.Images)
	}
	again, err := s.backend.Resolve(t.Context(), sandbox.Spec{MinIsolation: s.caps.Isolation, Image: info.Image, Network: info.Network})
	if err != nil || again != info {
		t.Errorf("resolved again: %+v, %v, want %+v", again, err, info)
	}
	b := s.openSpec(t, sandbox.Spec{Dir: t.TempDir(), Image: info.Image, Network: info.Network})
	got := b.Info()
	if dir := got.Dir; !path.IsAbs(filepath.ToSlash(dir)) {
		t.Errorf("its commands have the workspace at %q", dir)
	}
	if got.Dir = ""; got != info {
		t.Errorf("the sandbox says %+v, Resolve said %+v", got, info)
	}
	b.want(b.sh("echo here"), sandbox.Exited, 0, "here\n")
	b.want(b.sh("pwd -P"), sandbox.Exited, 0, b.Info().Dir+"\n")
}

// testUnofferedSpec: a backend rejects every Spec beyond its Capabilities, in Resolve and
// in Open.
func testUnofferedSpec(t *testing.T, s *suite) {
	specs := []sandbox.Spec{{Image: "rath-no-such-image:never"}}
	for _, n := range []sandbox.Network{sandbox.NetworkNone, sandbox.NetworkOpen, "list:example.org", "read_only:example.org", "tunnel"} {
		if !slices.Contains(s.caps.Networks, n.Kind()) {
			specs = append(specs, sandbox.Spec{Network: n})
		}
	}
	for _, spec := range specs {
		spec.MinIsolation, spec.Dir = s.caps.Isolation, t.TempDir()
		if _, err := s.backend.Resolve(t.Context(), spec); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("Resolve with image %q and network %q: %v", spec.Image, spec.Network, err)
		}
		if b, err := s.backend.Open(t.Context(), spec); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("Open with image %q and network %q: %v", spec.Image, spec.Network, err)
			if err == nil {
				b.Close()
			}
		}
	}
}
