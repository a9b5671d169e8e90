// Package fleet starts and controls the real processes of a fleet: NATS
// servers, nodes and routers, for tests and benchmarks on Linux as root.
//
// Each process lives in a network namespace of its own, with an address of its
// own on a bridge that belongs to the fleet, so that the network between any
// two of them can be cut in one direction or in both, see [Fleet.Cut], and can
// lose packets, see [Fleet.Lose]. Nothing is looked up in or sent to other
// networks. All processes, and with them the namespaces and the bridge, end with
// the process that started them, however that ends.
//
//	f, err := fleet.Start(ctx, &fleet.Options{Dir: dir, Servers: 3})
//	if err != nil {
//		return err
//	}
//	defer f.Close()
//	if err := f.AddNodes(ctx, 3, fleet.Program{Path: node}); err != nil {
//		return err
//	}
//	f.Nodes()[0].Kill()
//
// The NATS servers are this same program again: it calls [Child] first thing
// in main, or in TestMain.
//
// The package injects faults and judges nothing.
package fleet
