package engine

import (
	"github.com/rathcluster/rath/internal/agents/rules"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/tool"
)

// judged returns the decision of the operator's rules about a call of a model. A recorded
// call was allowed, and so was a call whose work has begun, whatever the rules are now.
func (r *round) judged(c *toolCall) rules.Decision {
	list := r.ex.rt.Rules
	if list == nil || r.agent == "" || r.recorded(c.path) || c.work != nil && r.recorded(r.at.Child("calls")) {
		return rules.Decision{}
	}
	return list.Decide(&rules.Call{
		Tenant: string(r.ex.home.Tenant), Workflow: r.ex.around.outermost().Workflow, Agent: r.agent, Tool: c.Name, Args: c.args, Link: r.link,
	})
}

// refusedBy is the message of a refusal by the rules.
func refusedBy(d rules.Decision) string {
	return "the operator of this node refuses the call: " + d.Reason + "; do without it"
}

// refuse ends a call before it runs. The model gets the message.
func (c *toolCall) refuse(message string) {
	out := tool.ErrorOutcome(&tool.Failure{Kind: tool.Rejected, Message: message, Detail: c.Name})
	c.refused = &out
}

// link returns the target of a symbolic link in the session's stored files; those of a
// workspace that cannot be read now have none.
func (r *round) link(name string) (target string, ok bool) {
	if r.tree == nil {
		r.tree = &manifest.Tree{}
		if t, err := manifest.Load(r.ctx, r.ex.boxes.blobs(), r.base.Placement().Head); err == nil {
			r.tree = t
		}
	}
	e, ok := r.tree.Lookup(name)
	return e.Target, ok && e.Kind == manifest.Symlink
}
