package lease

import (
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// EffectIn is what a crash may do with calls of a tool in a session that was placed.
func EffectIn(s tool.Spec, p session.Placement) tool.Effect {
	if p.Isolation == "" {
		return s.Effect
	}
	return s.Effect.In(sandbox.Info{Isolation: sandbox.Isolation(p.Isolation), Network: sandbox.Network(p.Network), Outside: s.Outside || Outside(p.Services)})
}
