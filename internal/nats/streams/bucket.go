package streams

import (
	"context"
	"iter"

	"github.com/rathcluster/rath/internal/nats/conn"
)

// KeySubject is where an entry of a bucket lies.
func KeySubject(bucket, key string) string { return "$KV." + bucket + "." + key }

// Values yields the entries of a bucket under a key filter, from any replica: a lagging
// replica lacks the newest.
func (c *Streams) Values(ctx context.Context, bucket, filter string) iter.Seq2[conn.Message, error] {
	return func(yield func(conn.Message, error) bool) {
		for next := uint64(1); ; {
			start := next
			for m, err := range c.Messages.DirectPage(ctx, "KV_"+bucket, KeySubject(bucket, filter), start) {
				if err == nil {
					next = m.Seq + 1
					if op := m.Header.Get("KV-Operation"); op == "DEL" || op == "PURGE" {
						continue
					}
				}
				if !yield(m, err) || err != nil {
					return
				}
			}
			if next == start {
				return
			}
		}
	}
}
