//go:build e2e

package dispatch

import (
	"testing"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// TestClusterQueueAfterRestart stops three servers, one after another and all at once, and
// restarts them while a node handles a task.
func TestClusterQueueAfterRestart(t *testing.T) {
	for name, rolling := range map[string]bool{"rolling": true, "at once": false} {
		t.Run(name, func(t *testing.T) {
			cluster := natstest.StartCluster(t, 3)
			queueAfter(t, &streams.Options{Options: conn.Options{URL: cluster.URLs(0)}, Level: streams.Lazy, Replicas: 3, Partitions: 1}, func() {
				for i := range 3 {
					cluster.Stop(i)
					if rolling {
						cluster.Start(t, i)
					}
				}
				for i := 0; i < 3 && !rolling; i++ {
					cluster.Start(t, i)
				}
			})
		})
	}
}
