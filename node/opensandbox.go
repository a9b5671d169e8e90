package node

import (
	"context"
	"flag"
	"fmt"

	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/opensandbox"
)

// openSandboxFlags adds the flags of the server of the backend "opensandbox".
func openSandboxFlags(flags *flag.FlagSet, env func(string) string, o *opensandbox.Options) {
	flags.StringVar(&o.URL, "sandbox-opensandbox-url", or(env("RATH_SANDBOX_OPENSANDBOX_URL"), o.URL), "offer the sandbox \"opensandbox\": sandboxes of the OpenSandbox server at this `URL`, such as https://HOST/v1 (RATH_SANDBOX_OPENSANDBOX_URL)")
	flags.StringVar(&o.KeyFile, "sandbox-opensandbox-key-file", or(env("RATH_SANDBOX_OPENSANDBOX_KEY_FILE"), o.KeyFile), "`file` with the server's API key (RATH_SANDBOX_OPENSANDBOX_KEY_FILE)")
	flags.StringVar(&o.Image, "sandbox-opensandbox-image", or(env("RATH_SANDBOX_OPENSANDBOX_IMAGE"), o.Image), "their `image`, as NAME@sha256:DIGEST (RATH_SANDBOX_OPENSANDBOX_IMAGE)")
}

// openSandbox returns the backend "opensandbox", where the options name a server. A node whose
// server cannot be used does not start.
func (n *Instance) openSandbox(ctx context.Context) (sandbox.Backend, error) {
	o := n.o.Sandbox.OpenSandbox
	if o.Logger == nil {
		o.Logger = n.log
	}
	b := opensandbox.New(o)
	if err := n.usable(ctx, b); err != nil {
		return nil, fmt.Errorf("node: sandboxes of the server %s: %w", o.URL, err)
	}
	return b, nil
}
