// Package lineage says where sessions come from: which fork, merge, model call,
// tool call or decision made them, on which branch, in which run.
//
// The graph follows from the logs. [Derive] is a pure function from one commit to
// small JSON records, which a relay stores in order and publishes one by one:
//
//	rath.tail.<tenant>.<root session>.<kind>.<session>
//
// Each [Record] has a summary of at most 100 characters, which a plain subscriber
// can read, and carries nothing else of a transcript. A [Graph] is an index of
// records: the same records, in any order and any number of times, give the same
// answers. It knows sessions with their parents and their ends, runs with their
// states, what made a chunk, what it touched afterwards and how a workspace's head
// moved; a [Selector] chooses runs by all of that, and the graph draws itself as
// text, Mermaid, SVG and JSON.
//
//	g := lineage.NewGraph()
//	for e := range log {
//		records, err := lineage.Derive(e)
//		...
//		g.Add(records...)
//	}
//	fmt.Print(g.Tree(root, nil))
//
// The package is a view of the logs and never their replacement: decisions are made
// on the logs. It reads no clock and starts no goroutine.
//
// Files, the lowest first: text, kind, record, encode, stored, cursor, derive, derive_run,
// derive_step, graph, session, runs, heads, maker, spent, impact, kin, selector, selector_parse,
// label, timeline, layout, picture, tree, mermaid, svg.
package lineage
