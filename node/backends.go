package node

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/docker"
	"github.com/rathcluster/rath/sandbox/kubernetes"
	"github.com/rathcluster/rath/sandbox/opensandbox"
)

// containers returns the backend "docker", where the options name an image. A node whose
// engine cannot be used does not start.
func (s *sandboxes) containers(ctx context.Context, store string) (sandbox.Backend, error) {
	o := s.o.Sandbox.Docker
	o.State, o.Logger = or(o.State, filepath.Join(store, "containers")), s.o.Logger
	b := docker.New(&o)
	if err := s.usable(ctx, b); err != nil {
		return nil, fmt.Errorf("node: sandboxes of image %s: %w", o.Image, err)
	}
	return b, nil
}

// usable probes a backend of the node. It removes the sandboxes of former processes
// first: they may use up all resources of the node's sandboxes.
func (s *sandboxes) usable(ctx context.Context, b sandbox.Backend) error {
	if err := s.sweep(ctx, b); err != nil {
		return err
	}
	_, err := b.Probe(ctx)
	return err
}

// sweep removes the sandboxes that former processes left in a backend, now and while
// the node serves.
func (s *sandboxes) sweep(ctx context.Context, b sandbox.Backend) error {
	sweeper, ok := b.(sandbox.Sweeper)
	if !ok {
		return nil
	}
	if _, err := sweeper.Sweep(ctx); err != nil {
		return fmt.Errorf("remove leftovers of former processes: %w", err)
	}
	s.sweepers = append(s.sweepers, sweeper.Run)
	return nil
}

// openSandboxFlags adds the flags of the server of the backend "opensandbox".
func openSandboxFlags(flags *flag.FlagSet, env func(string) string, o *opensandbox.Options) {
	flags.StringVar(&o.URL, "sandbox-opensandbox-url", or(env("RATH_SANDBOX_OPENSANDBOX_URL"), o.URL), "offer the sandbox \"opensandbox\": sandboxes of the OpenSandbox server at this `URL`, such as https://HOST/v1 (RATH_SANDBOX_OPENSANDBOX_URL)")
	flags.StringVar(&o.KeyFile, "sandbox-opensandbox-key-file", or(env("RATH_SANDBOX_OPENSANDBOX_KEY_FILE"), o.KeyFile), "`file` with the server's API key (RATH_SANDBOX_OPENSANDBOX_KEY_FILE)")
	flags.StringVar(&o.Image, "sandbox-opensandbox-image", or(env("RATH_SANDBOX_OPENSANDBOX_IMAGE"), o.Image), "their `image`, as NAME@sha256:DIGEST (RATH_SANDBOX_OPENSANDBOX_IMAGE)")
}

// openSandbox returns the backend "opensandbox", where the options name a server. A node whose
// server cannot be used does not start.
func (s *sandboxes) openSandbox(ctx context.Context) (sandbox.Backend, error) {
	o := s.o.Sandbox.OpenSandbox
	if o.Logger == nil {
		o.Logger = s.o.Logger
	}
	b := opensandbox.New(o)
	if err := s.usable(ctx, b); err != nil {
		return nil, fmt.Errorf("node: sandboxes of the server %s: %w", o.URL, err)
	}
	return b, nil
}

// podFlags adds the flags of the backend "kubernetes".
func podFlags(flags *flag.FlagSet, env func(string) string, o *kubernetes.Options) {
	flags.StringVar(&o.Image, "sandbox-kubernetes-image", or(env("RATH_SANDBOX_KUBERNETES_IMAGE"), o.Image), "offer the sandbox \"kubernetes\": pods of this `image` (RATH_SANDBOX_KUBERNETES_IMAGE)")
	flags.StringVar(&o.NodeImage, "sandbox-kubernetes-node-image", or(env("RATH_SANDBOX_KUBERNETES_NODE_IMAGE"), o.NodeImage), "`image` that this node runs in, from which pods get its program (RATH_SANDBOX_KUBERNETES_NODE_IMAGE)")
	flags.StringVar(&o.Namespace, "sandbox-kubernetes-namespace", or(env("RATH_SANDBOX_KUBERNETES_NAMESPACE"), o.Namespace), "`namespace` of pods; by default the service account's or the kubeconfig's (RATH_SANDBOX_KUBERNETES_NAMESPACE)")
	flags.StringVar(&o.RuntimeClass, "sandbox-kubernetes-runtime-class", or(env("RATH_SANDBOX_KUBERNETES_RUNTIME_CLASS"), o.RuntimeClass), "runtime `class` of pods, such as kata (RATH_SANDBOX_KUBERNETES_RUNTIME_CLASS)")
	flags.StringVar(&o.Mode, "sandbox-kubernetes-mode", or(env("RATH_SANDBOX_KUBERNETES_MODE"), o.Mode), "`way` in which pods are made: pod, claim (SandboxClaim of agent-sandbox); without it claims where the API server has them (RATH_SANDBOX_KUBERNETES_MODE)")
	flags.StringVar(&o.Kubeconfig, "sandbox-kubernetes-config", or(env("RATH_SANDBOX_KUBERNETES_CONFIG"), o.Kubeconfig), "kubeconfig `file`; without it the service account of this pod (RATH_SANDBOX_KUBERNETES_CONFIG)")
	secrets := func(s string) error {
		o.PullSecrets = strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
		return nil
	}
	if s := env("RATH_SANDBOX_KUBERNETES_PULL_SECRETS"); s != "" {
		_ = secrets(s) // it takes any text
	}
	flags.Func("sandbox-kubernetes-pull-secrets", "`names` of secrets with which images of pods are pulled, with commas between (RATH_SANDBOX_KUBERNETES_PULL_SECRETS)", secrets)
}

// PodOptions returns the options of the backend "kubernetes" from variables of the
// environment: RATH_SANDBOX_KUBERNETES_IMAGE and so on.
func PodOptions(env func(string) string) (o kubernetes.Options) {
	podFlags(flag.NewFlagSet("", flag.ContinueOnError), env, &o)
	return o
}

// pods returns the backend "kubernetes", where the options name an image. A node whose
// cluster runs no such pod does not start.
func (s *sandboxes) pods(ctx context.Context) (sandbox.Backend, error) {
	o := s.o.Sandbox.Kubernetes
	o.Holder, o.Logger = or(o.Holder, s.o.Name), s.o.Logger
	b := kubernetes.New(o)
	if err := s.usable(ctx, b); err != nil {
		return nil, fmt.Errorf("node: sandboxes in pods of image %s: %w", o.Image, err)
	}
	return b, nil
}
