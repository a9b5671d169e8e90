// Package api answers the requests of clients and nodes over NATS: control, queries, dead
// letters, remote tools, nodes. Package requests makes them.
//
// A [Conn] is one connection to the NATS servers, with the parts over it side by side:
// packages streams, eventlog, project, archive and dispatch. Each part holds those that it
// uses; dispatching does not use the archive.
//
//	c, err := api.Connect(ctx, &streams.Options{URL: "nats://nats:4222", Name: "node-1", Replicas: 3, Probe: …})
//	if err != nil {
//		return err
//	}
//	defer c.Conn.Close()
//	if err := c.Streams.Provision(ctx); err != nil {
//		return err
//	}
//
// The package holds no workflow logic and decides nothing about which writer may write.
//
// Files, the lowest first: connect, delta, nodes, query_handlers, files, import,
// control, tool, tenantstore, bound, memory, notes, known, deadletters, ask, rerun, quota, live,
// query, repair.
package api
