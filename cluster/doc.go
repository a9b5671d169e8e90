// Package cluster tracks the live nodes of a fleet, their pools and their load.
//
// The nodes of a fleet find and watch each other by gossip (memberlist). Each holds a
// list of the others that is right most of the time and late by about a second: which
// incarnations live, their pools, free slots, isolation, and whether they are draining.
// That makes recovery fast (the runs of a dead node are offered again at once) and
// takeover polite (a live node that holds a session is asked first). `rath cluster
// nodes` and drains read the list too.
//
//	m, err := cluster.Start(ctx, cluster.Config{
//		Name:        "rath-node-0",           // the pod: the same after a restart
//		Incarnation: incarnation,             // this start of it: never used twice
//		Bind:        "0.0.0.0:7946",
//		Advertise:   os.Getenv("POD_IP"),
//		Join:        []string{"rath-gossip.rath.svc.cluster.local:7946"},
//		Key:         key,
//		Protocol:    1,
//		About:       func() cluster.Node { return cluster.Node{Pools: pools, Slots: 64, FreeSlots: free()} },
//	})
//	if err != nil {
//		return err
//	}
//	defer m.Close()
//	for {
//		changed := m.Changed() // before the look, so that no change is missed
//		offer(m.List())
//		select {
//		case <-changed:
//		case <-ctx.Done():
//			return nil
//		}
//	}
//
// # Limits
//
// The package never decides which node may write: the log's compare-and-set does, and
// stays right when this list is wrong. The list is no consensus and no quorum. Views
// differ for a while, a node that was starved of CPU for over a second may be called
// dead and come back under the same incarnation, and in a partition each side calls the
// other dead. So act on the list only where a mistake costs time, and ask the node
// itself where that is cheap. The package sends only to the other nodes.
//
// # For operators
//
// Each node needs UDP and TCP on its gossip port (7946 by default) from and to every
// other node, the same key, and the same label. Where only TCP gets through (some
// service meshes) nodes still see each other, each node logs a warning, and detection
// takes longer.
//
// Bind is loopback by default. In a pod bind to 0.0.0.0 and advertise the pod's address
// (status.podIP through the downward API): no address is guessed from the interfaces.
// Join names a headless Service with publishNotReadyAddresses, so that nodes meet
// before they are ready. It is resolved every few seconds while no other node is seen
// and every [RejoinEvery] later, and addresses that are not in the list are contacted.
// So the halves of a partition find each other however long it lasted.
//
// The key is the trust boundary: its holder can add, remove and impersonate
// nodes. Keep it in a Secret. To change it without a gap, roll the fleet three
// times: accept the new key beside the old one (AcceptKeys), send with the new
// one and accept the old one, drop the old one. The label keeps fleets apart that
// share a key or addresses; it is not secret.
//
// A node whose key, label or protocol does not fit is rejected by all: [Start] fails
// with [ErrRefused] and the remedy, and the nodes that rejected it log a warning with
// its address. If the misfits meet only later, both sides log it and [Members.Err]
// returns it.
//
// A killed, frozen or unplugged node is called dead after about 1 s, 2 s at the worst,
// and a node that leaves at once; config.go lists the settings and the measurements. A
// node that wakes up is back after a fraction of a second.
package cluster
