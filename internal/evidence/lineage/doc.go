// Package lineage answers questions about the origin of sessions: which fork, merge, model
// call, tool call or decision made them, on which branch, in which run.
//
// The graph follows from the logs. [Derive] is a pure function from one commit to
// small JSON records, which a relay stores in order and publishes one by one:
//
//	rath.tail.<tenant>.<root session>.<kind>.<session>
//
// Each [messages.Record] has a summary of at most 100 characters for plain subscribers, and
// no other text of a transcript. A [Graph] is an index of records: the same records, in any
// order and any number of times, give the same answers. It stores sessions with their
// parents and outcomes, runs with their states, the maker and the impact of a chunk, and
// the moves of a workspace's head. A [Selector] selects runs by these data, and the graph
// can be drawn as text, Mermaid, SVG and JSON.
//
//	g := lineage.NewGraph()
//	for e := range log {
//		records, err := lineage.Derive(e)
//		...
//		g.Add(records...)
//	}
//	fmt.Print(g.Tree(root, nil))
//
// The package is a view of the logs and never their replacement: decisions use the logs.
// It reads no clock and starts no goroutine.
//
// Files, the lowest first: text, record, encode, stored, cursor, derive, derive_run,
// derive_step, graph, session, runs, heads, maker, spent, impact, kin, selector, selector_parse,
// columns, sieve, label, timeline, layout, picture, tree, mermaid, svg.
package lineage
