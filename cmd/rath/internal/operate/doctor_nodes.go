package operate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
)

// checkWorkflows names the workflows on offer and, if the nodes were seen, the
// workflows without a live node, such as those of a pool that has ended.
func checkWorkflows(ws []messages.Workflow, ns []messages.Node, seen bool) finding {
	var served, without []string
	for _, w := range ws {
		if seen && !slices.ContainsFunc(ns, func(n messages.Node) bool { return !n.Dead && has(n, w) }) {
			without = append(without, w.Name)
		} else {
			served = append(served, w.Name)
		}
	}
	slices.Sort(served)
	slices.Sort(without)
	served = slices.Compact(served) // several pools may offer one
	without = slices.DeleteFunc(slices.Compact(without), func(name string) bool { return slices.Contains(served, name) })
	f := finding{Check: "workflows", OK: true, Found: cmp.Or(view.Names(served), "none")}
	if len(without) > 0 {
		f.Found += "; no node has " + view.Names(without)
		f.Remedy = "tasks of these wait until a node starts that has them"
	}
	return f
}

// has reports whether a node executes a workflow of a pool.
func has(n messages.Node, w messages.Workflow) bool {
	return slices.Contains(n.Pools, w.Pool) && slices.ContainsFunc(n.Offers, func(offer string) bool { return strings.HasPrefix(offer, w.Name+"@") })
}

// checkPrograms reports which nodes have no shell for commands of agents.
func checkPrograms(ns []messages.Node) finding {
	f := finding{Check: "commands", OK: true}
	var none, found []string
	for _, n := range ns {
		switch {
		case n.Dead || !offersAgents(n) || n.Isolation == "":
		case !slices.Contains(n.Programs, "sh"):
			none = append(none, n.Name)
		default:
			found = append(found, n.Programs...)
		}
	}
	slices.Sort(found)
	f.Found = cmp.Or(strings.Join(slices.Compact(found), ", "), "none")
	if len(none) > 0 {
		f.Found += "; no shell on " + view.Names(none)
		f.Remedy = "commands of agents fail there: give these nodes an image with a shell and programs; in the chart set image.flavor: tools, or your own image"
	}
	return f
}

// checkModels reports the nodes that cannot ask their default model while others can: a
// task works on one and fails on another.
func checkModels(ns []messages.Node) finding {
	f := finding{Check: "models", OK: true}
	var names, without, reasons []string
	with := 0
	for _, n := range ns {
		switch {
		case n.Dead || view.RelaysOnly(n):
		case n.ModelError != "":
			without, reasons = append(without, n.Name), append(reasons, n.ModelError)
		default:
			with++
			names = append(names, cmp.Or(n.Model, "without a default name"))
		}
	}
	slices.Sort(names)
	f.Found = "of nodes: " + cmp.Or(strings.Join(slices.Compact(names), ", "), "none")
	if len(without) > 0 {
		f.OK = with == 0
		f.Found += "; none on " + view.Names(without) + ": " + term.Line(reasons[0], 200)
		f.Remedy = "agents fail there, and auto where these are routers: give all nodes and routers the same environment, in the chart model.envFrom"
	}
	return f
}

// checkGaps reports the event streams whose lineage has a gap, if there are any.
func checkGaps(ns []messages.Node) []finding {
	var all []string
	for _, n := range ns {
		if !n.Dead {
			all = append(all, n.Gaps...)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	return []finding{{
		Check: "lineage", Found: "gap in the lineage of " + view.Names(slices.Compact(all)) + `: lists, "top", "why" and "cluster tail" lack records`,
		Remedy: `"rath cluster repair" derives it again from the logs, with the role operate; the log of the node has why the node could not`,
	}}
}

// offersAgents reports whether agents run on a node: routers run none.
func offersAgents(n messages.Node) bool {
	return slices.ContainsFunc(n.Offers, func(o string) bool { return strings.HasPrefix(o, "agent@") })
}

// checkNodes checks that some nodes serve and none is silent. It names the dead ones:
// soon no list of nodes has them.
func checkNodes(ns []messages.Node) finding {
	f := finding{Check: "nodes", OK: true}
	count := map[string]int{}
	var silent, dead, found []string
	for _, n := range ns {
		word := view.NodeState(n)
		if n.Silent > 0 && !n.Dead {
			silent, word = append(silent, n.Name), "silent"
		}
		if n.Dead {
			dead = append(dead, n.Name)
		}
		count[word]++
	}
	for _, word := range slices.Sorted(maps.Keys(count)) {
		found = append(found, fmt.Sprintf("%d %s", count[word], word))
	}
	f.Found = strings.Join(found, ", ")
	if len(dead) > 0 {
		f.Found += " (dead: " + view.Names(dead) + ")"
	}
	name := map[string]string{}
	for _, n := range ns {
		name[n.Incarnation] = n.Name
	}
	var apart, from []string
	for _, n := range ns {
		for _, s := range n.Strangers {
			apart, from = append(apart, cmp.Or(name[s], s)), append(from, n.Name)
		}
	}
	switch {
	case len(apart) > 0:
		slices.Sort(apart)
		slices.Sort(from)
		f.OK, f.Remedy = false, "two fleets use the same streams, and each takes the nodes of the other for dead: "+view.Names(slices.Compact(from))+" and "+view.Names(slices.Compact(apart))+
			" do not share a gossip. Make them one fleet (in the chart gossip.fleet, in one namespace), or give each a separate NATS account"
	case len(ns) == 0:
		f.OK, f.Found, f.Remedy = false, "none", "start one: \"dev\", \"node\", or the node of your module"
	case count["serving"] == 0:
		f.OK, f.Remedy = false, "no node takes work: start one, or read the logs of the dead ones"
	case len(silent) > 0:
		f.OK, f.Remedy = false, "check "+view.Names(silent)+": it hangs or is disconnected; its runs resume elsewhere"
	}
	return f
}
