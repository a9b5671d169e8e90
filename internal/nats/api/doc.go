// Package api is Rath on NATS as nodes and clients use it: requests and their answers
// (control, queries, dead letters, remote tools, nodes), over all that lies below.
//
// A [Conn] is one connection to the NATS servers. Its methods hand out what the packages
// of the core ask for: the log of sessions, snapshots, blobs, whose contracts are there.
// The layers below it are packages streams, eventlog, project, archive and dispatch; each
// holds the one before.
//
//	c, err := api.Connect(ctx, &streams.Options{URL: "nats://nats:4222", Name: "node-1", Replicas: 3, Probe: …})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	if err := c.Provision(ctx); err != nil {
//		return err
//	}
//
// The package holds no workflow logic and decides nothing about which writer may write.
//
// Files, the lowest first: connect, delta, nodes, query_handlers, ask, live, requests, files,
// import, tenantstore, bound, memory, notes, known, deadletters, rerun, tool, repair, query, control.
package api
