package excerpt

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestCapture compares with keeping all bytes and cutting them afterwards.
func TestCapture(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		limit := 1 + r.IntN(20)
		c := NewCapture(limit)
		var all []byte
		for range r.IntN(8) {
			p := make([]byte, r.IntN(25))
			for i := range p {
				p[i] = byte(len(all) + i)
			}
			all = append(all, p...)
			if n, err := c.Write(p); n != len(p) || err != nil {
				t.Fatalf("Write = %d, %v", n, err)
			}
		}
		head, tail, total := c.Kept()
		if total != int64(len(all)) {
			t.Fatalf("total %d of %d", total, len(all))
		}
		if len(all) <= limit {
			if kept := append(head, tail...); !bytes.Equal(kept, all) {
				t.Fatalf("limit %d: %v became %v", limit, all, kept)
			}
			continue
		}
		if !bytes.Equal(head, all[:limit/2]) || !bytes.Equal(tail, all[len(all)-(limit-limit/2):]) {
			t.Fatalf("limit %d: head %v, tail %v of %v", limit, head, tail, all)
		}
	}
}
