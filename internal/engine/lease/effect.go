package lease

import (
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// EffectIn returns the effect of a tool's calls in a session with a placement, which
// decides their recovery after a crash.
func EffectIn(s tool.Spec, p session.Placement) tool.Effect {
	if p.Isolation == "" {
		return s.Effect
	}
	return s.Effect.In(sandbox.Info{Isolation: sandbox.Isolation(p.Isolation), Network: sandbox.Network(p.Network), Outside: s.Outside || Outside(p.Services)})
}
