package egress

import (
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestTransport: requests of the node reach the same hosts as requests of commands, with
// the same secrets and evidence. A response of the proxy itself is an error.
func TestTransport(t *testing.T) {
	w := newWorld(t)
	w.addrs["private.net"] = []netip.Addr{netip.MustParseAddr("10.1.2.3")}
	p, _ := w.proxy(t, "read_only:files.net,private.net,plain.net", Secret{Host: "files.net", Header: "Authorization", Value: "Bearer " + secret, hidden: []string{secret}})
	client := http.Client{Transport: p.Transport()}
	for _, tt := range []struct {
		method, to string
		says       string // of an answer
		refused    string
		status     int // as recorded
	}{
		{"GET", "https://files.net/x", "GET files.net ", "", 200},
		{"GET", "http://plain.net/", "GET plain.net ", "", 200},
		{"GET", "https://files.net/echo", "before Bearer " + strings.Repeat("*", len(secret)) + " after", "", 200},
		{"GET", "http://files.net/", "", "a secret goes to files.net, so it is reached by https alone", 403},
		{"POST", "https://files.net/", "", "POST: this run may read alone, by GET and HEAD", 403},
		{"GET", "http://evil.net/", "", `"evil.net" is not among the hosts that this run may reach`, 403},
		{"GET", "https://evil.net/", "", `"evil.net" is not among the hosts that this run may reach`, 403},
		{"GET", "https://127.0.0.1/", "", `"127.0.0.1" is not among the hosts that this run may reach`, 403},
		{"GET", "http://plain.net:8080/", "", "port 8080 is not the one of http: only port 80 of http and port 443 of https are reached", 403},
		{"GET", "https://private.net/", "", "private.net is at 10.1.2.3, which is no address of the Internet", 403},
		{"GET", "https://files.net/away", "", `"elsewhere.org" is not among the hosts that this run may reach`, 0},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tt.method, tt.to, nil)
		must.Do(t, err)
		resp, err := client.Do(r)
		if err != nil {
			if tt.refused == "" || !strings.HasSuffix(err.Error(), ": "+tt.refused) {
				t.Errorf("%s %s: %v, want %q", tt.method, tt.to, err, tt.refused)
			}
		} else {
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || tt.refused != "" || string(text) != tt.says {
				t.Errorf("%s %s: %q, %v, want %q", tt.method, tt.to, text, err, tt.says)
			}
		}
		told, _ := p.Take()
		if tt.status != 0 && (len(told) != 1 || told[0].Status != tt.status || told[0].Refused != tt.refused) || tt.status == 0 && len(told) != 2 {
			t.Errorf("%s %s: the evidence is %+v", tt.method, tt.to, told)
		}
	}
	must.Do(t, p.Close())
	if _, err := client.Get("http://plain.net/"); err == nil {
		t.Error("a closed proxy carries a request")
	}
}
