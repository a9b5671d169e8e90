package cluster_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/rathcluster/rath/cluster"
)

// Two nodes find each other; one describes itself and leaves.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	key := cluster.NewKey()
	start := func(name string, pools []string, join ...string) *cluster.Members {
		m, err := cluster.Start(ctx, cluster.Config{
			Name: name, Incarnation: name + "-x7", Bind: "127.0.0.1:0", Join: join, Key: key, Protocol: 1,
			About: func() cluster.Node { return cluster.Node{Pools: pools, Slots: 8, FreeSlots: 8} },
		})
		if err != nil {
			log.Fatal(err)
		}
		return m
	}
	// wait returns when the list of a node has the wanted length.
	wait := func(m *cluster.Members, nodes int) {
		for {
			changed := m.Changed()
			if len(m.List()) == nodes {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				log.Fatal("too late: ", m.Err())
			}
		}
	}

	a := start("node-a", []string{"default"})
	b := start("node-b", []string{"gpu"}, a.Addr())
	defer a.Close()
	wait(a, 2)
	for _, n := range a.List() {
		fmt.Println(n.Name, n.Pools, n.FreeSlots, a.Alive(n.Incarnation))
	}
	if err := b.Close(); err != nil { // leaves politely
		log.Fatal(err)
	}
	wait(a, 1)
	fmt.Println("node-b", a.Alive("node-b-x7"))
	// Output:
	// node-a [default] 8 true
	// node-b [gpu] 8 true
	// node-b false
}

func ExampleParseKey() {
	key := cluster.NewKey()
	again, err := cluster.ParseKey(key.Text()) // from a Secret, in the environment
	fmt.Println(again, len(again), err)

	_, err = cluster.ParseKey("c2hvcnQ=")
	fmt.Println(err)
	// Output:
	// [key] 32 <nil>
	// cluster: key: 5 bytes: it has 16, 24 or 32 (`openssl rand -base64 32`)
}
