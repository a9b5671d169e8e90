package node

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/kubernetes"
)

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
func (n *Instance) pods(ctx context.Context) (sandbox.Backend, error) {
	o := n.o.Sandbox.Kubernetes
	o.Holder, o.Logger = or(o.Holder, n.o.Name), n.log
	b := kubernetes.New(o)
	if err := n.usable(ctx, b); err != nil {
		return nil, fmt.Errorf("node: sandboxes in pods of image %s: %w", o.Image, err)
	}
	return b, nil
}
