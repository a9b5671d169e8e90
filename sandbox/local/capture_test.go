package local

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestCapture compares with keeping everything and cutting it afterwards.
func TestCapture(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		limit := 1 + r.IntN(20)
		c := newCapture(limit)
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
		out := c.output()
		if out.Total != int64(len(all)) {
			t.Fatalf("total %d of %d", out.Total, len(all))
		}
		if len(all) <= limit {
			if !bytes.Equal(out.Bytes(), all) || out.Dropped() != 0 {
				t.Fatalf("limit %d: %v became %v", limit, all, out.Bytes())
			}
			continue
		}
		if !bytes.Equal(out.Head, all[:limit/2]) || !bytes.Equal(out.Tail, all[len(all)-(limit-limit/2):]) || out.Dropped() != int64(len(all)-limit) {
			t.Fatalf("limit %d: head %v, tail %v of %v", limit, out.Head, out.Tail, all)
		}
	}
}
