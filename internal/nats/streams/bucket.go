package streams

import (
	"context"
	"iter"

	"github.com/rathcluster/rath/internal/nats/conn"
)

// KeySubject is where an entry of a bucket lies.
func KeySubject(bucket, key string) string { return "$KV." + bucket + "." + key }

// Values yields the entries of a bucket under a key filter, from any replica, with retries:
// a lagging replica lacks the newest.
func (c *Streams) Values(ctx context.Context, bucket, filter string) iter.Seq2[conn.Message, error] {
	return func(yield func(conn.Message, error) bool) {
		for m, err := range c.Messages.From(ctx, "KV_"+bucket, KeySubject(bucket, filter), 0) {
			if op := m.Header.Get("KV-Operation"); op == "DEL" || op == "PURGE" {
				continue
			}
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}
