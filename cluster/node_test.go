package cluster

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"

	"github.com/rathcluster/rath/internal/testkit/must"
)

func peer(meta string) *memberlist.Node {
	return &memberlist.Node{Name: "inc-1", Addr: net.IPv4(10, 0, 0, 1), Port: 7946, Meta: []byte(meta)}
}

func TestDescription(t *testing.T) {
	n := Node{
		Name: "node", Incarnation: "inc-1", Addr: "10.0.0.1:7946", Protocol: 3, Version: "v1", Isolation: "kernel",
		Pools: []string{"a", "b"}, Slots: 9, FreeSlots: 2, Draining: true,
	}
	data, err := encode(n, 2)
	must.Do(t, err)
	got, oldest, err := decode(peer(string(data)))
	if err != nil || oldest != 2 || fmt.Sprint(got) != fmt.Sprint(n) {
		t.Errorf("%+v %d %v\nwant %+v", got, oldest, err, n)
	}
	// A newer release may send more fields.
	if got, _, err := decode(peer(`{"n":"x","p":1,"o":1,"new":{"a":1}}`)); err != nil || got.Name != "x" {
		t.Errorf("%+v %v", got, err)
	}
	for _, bad := range []string{"", "{}", `{"n":"x"}`, `{"n":"x","p":-1}`, `{"n":1,"p":1}`, `{"n":"a b","p":1}`, "\x00"} {
		if _, _, err := decode(peer(bad)); err == nil || !strings.Contains(err.Error(), `"inc-1" at 10.0.0.1:7946`) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	// The limit is exact.
	n = Node{Name: "n", Protocol: 1}
	for size := range 600 {
		n.Version = strings.Repeat("x", size)
		data, err := encode(n, 1)
		if (err != nil) != errors.Is(err, ErrTooLarge) || err == nil && len(data) > MaxMetadata {
			t.Fatalf("%d bytes, %v", len(data), err)
		}
		if err != nil {
			n.Version = n.Version[1:]
			if data, err := encode(n, 1); err != nil || len(data) != MaxMetadata {
				t.Errorf("refused one byte above %d, %v", len(data), err)
			}
			return
		}
	}
	t.Error("nothing is too large")
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"n":"node","p":1,"o":1,"l":["a"],"s":1,"f":1,"d":true}`))
	f.Add([]byte(`{"n":"node","p":1e9,"l":[null]}`))
	f.Fuzz(func(t *testing.T, meta []byte) {
		n, oldest, err := decode(peer(string(meta)))
		if err != nil {
			return
		}
		if n.Incarnation != "inc-1" || n.Name == "" || n.Protocol <= 0 {
			t.Fatalf("%+v", n)
		}
		c := Config{Protocol: 1, OldestProtocol: 1}
		c.fits(n, oldest)
	})
}
