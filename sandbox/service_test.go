package sandbox

import (
	"strings"
	"testing"
	"time"
)

// TestServicesText: hand-written services have one canonical text, which parses to the same
// services.
func TestServicesText(t *testing.T) {
	for text, want := range map[string]string{
		"":   "",
		"[]": "",
		`[{"name":"web","command":"python3 -m http.server 8000 >log 2>&1","ready":8000}]`:            "",
		`[{"name":"a","command":["redis-server","--port","7000"],"ready":"redis-cli -p 7000 ping"}]`: "",
		`[ {"state":"outside", "name":"a","timeout_ms":5, "command":["sh","-c","sleep 9"]} ]`:        `[{"name":"a","command":"sleep 9","timeout_ms":5,"state":"outside"}]`,
		`[{"name":"a","command":"x","state":"workspace","timeout_ms":30000}]`:                        `[{"name":"a","command":"x"}]`,
		`[{"name":"a","command":"x"},{"name":"b","command":"y","ready":["true"]}]`:                   "",
	} {
		if want == "" && text != "[]" {
			want = text
		}
		l, err := ParseServices(text)
		got, _ := ServicesText(l)
		if err != nil || got != want {
			t.Errorf("%s became %s, %v, want %s", text, got, err, want)
		}
		if again, err := ParseServices(got); err != nil {
			t.Error(err)
		} else if text, err := ServicesText(again); err != nil || text != got {
			t.Errorf("%s read again is %s, %v", got, text, err)
		}
	}
}

func TestServicesRefused(t *testing.T) {
	long := `[{"name":"a","command":"` + strings.Repeat("x", MaxServicesText) + `"}]`
	many := "[" + strings.Repeat(`{"name":"a","command":"x"},`, MaxServices) + `{"name":"a","command":"x"}]`
	for text, want := range map[string]string{
		`x`:                                                             "write [{",
		`[{"name":"a","command":"x","port":80}]`:                        "unknown field",
		`[{"name":"a b","command":"x"}]`:                                "a name has",
		`[{"name":"a"}]`:                                                "no command",
		`[{"name":"a","command":[]}]`:                                   "no command",
		`[{"name":"a","command":" "}]`:                                  "no command",
		`[{"name":"a","command":"x\u0000"}]`:                            "no command",
		`[{"name":"a","command":7}]`:                                    "a command is",
		`[{"name":"a","command":"x","ready":70000}]`:                    "no port",
		`[{"name":"a","command":"x","ready":0}]`:                        "no port",
		`[{"name":"a","command":"x","ready":[]}]`:                       "no command",
		`[{"name":"a","command":"x","timeout_ms":600001}]`:              "timeout_ms",
		`[{"name":"a","command":"x","state":"memory"}]`:                 "workspace or outside",
		`[{"name":"a","command":"x"}] x`:                                "unexpected",
		`[{"name":"a","command":"x","timeout_ms":9223372036854775807}]`: "timeout_ms",
		`[{"name":"a","command":"x"},{"name":"a","command":"x"}]`:       "two have this name",
		long: "of at most 4096",
		many: "more than a sandbox has, 8",
	} {
		if l, err := ParseServices(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, %v, want %q", text, l, err, want)
		}
	}
	if got := (Service{Timeout: 1500 * time.Millisecond}).Patience(); got != 1500*time.Millisecond {
		t.Errorf("it waits %v", got)
	}
}
