package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// A key is in no log, message or JSON, however it is printed.
func TestKeyIsHidden(t *testing.T) {
	k := Key("0123456789abcdef")
	c := Config{Key: k, AcceptKeys: []Key{k}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		fmt.Fprintf(&out, verb+" "+verb+" "+verb+"\n", k, c, &c)
	}
	data, err := json.Marshal(struct{ K Key }{k})
	must.Do(t, err)
	out.Write(data)
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("config", "key", k, "keys", []Key{k}, "struct", struct{ K Key }{k})
	}
	_, err = ParseKey(k.Text()[:9])
	fmt.Fprintln(&out, err)
	_, err = ParseKey(k.Text() + "AAAA")
	fmt.Fprintln(&out, err)
	text := out.String()
	for _, bad := range []string{"0123456789", k.Text()[:8], "30313233", "48 49 50", "0x30, 0x31"} {
		if strings.Contains(text, bad) {
			t.Errorf("found %q in\n%s", bad, text)
		}
	}
}

func TestParseKey(t *testing.T) {
	for range 3 {
		k := NewKey()
		got, err := ParseKey(k.Text() + "\n")
		if err != nil || !bytes.Equal(got, k) || bytes.Equal(k, NewKey()) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
	for _, bad := range []string{"", "not base64!", "AAAA"} {
		if _, err := ParseKey(bad); err == nil || !strings.Contains(err.Error(), "openssl") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
