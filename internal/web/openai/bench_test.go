package openai_test

import (
	"bufio"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
)

// mostAdded is the time that the door may add to the first token.
const mostAdded = 3 * time.Millisecond

// BenchmarkFirstToken compares the time to the first token of the door with that of plain
// HTTP: a submission, and the events of its run. Both send a first message, and a message
// that continues a session. The requests alternate.
func BenchmarkFirstToken(b *testing.B) {
	d := open(b)
	var took [4][]time.Duration
	measure := func(at int, f func()) {
		began := time.Now()
		f()
		took[at] = append(took[at], time.Since(began))
	}
	plain := func(id, more string) {
		if r := d.send(b, "ann", "PUT", "/api/v1/runs/"+id, `{"workflow":"talk","input":"hello"`+more+`}`); r.status != http.StatusAccepted {
			b.Fatalf("%d %s", r.status, r.body)
		}
		d.firstLine(b, "GET", "/api/v1/runs/"+id+"/events", "", "event: text.delta", "event: run.ended")
	}
	door := func(history ...message) {
		d.firstLine(b, "POST", "chat/completions", chatBody(b, "talk", `,"stream":true`, history...), `"content":"`)
	}
	for n := 0; b.Loop(); n++ {
		id, text := string(client.NewID()), fmt.Sprint("hello ", n)
		measure(0, func() { plain(id, "") })
		measure(1, func() { door(user(text)) })
		r := must.Get(d.client.Wait(b.Context(), run.ID(id)))(b)
		answer, _ := d.chat(b, "ann", "talk", user(text+" again"))
		measure(2, func() { plain(id+"-2", fmt.Sprintf(`,"session":%q`, r.Session)) })
		measure(3, func() { door(user(text+" again"), assistant(answer), user("more")) })
	}
	var p50 [4]time.Duration
	for i, all := range took {
		slices.Sort(all)
		p50[i] = all[len(all)/2]
	}
	b.Logf("first token, p50 of %d: a first message %v, plain %v; a continued history %v, plain %v", len(took[0]), p50[1], p50[0], p50[3], p50[2])
	for i, name := range []string{"first", "continued"} {
		added := p50[2*i+1] - p50[2*i]
		b.ReportMetric(float64(added)/1e6, "ms-added-"+name)
		if added > mostAdded {
			b.Errorf("the door adds %v to the first token of a %s message, want at most %v", added, name, mostAdded)
		}
	}
}

// firstLine reads a stream up to a line with a text, and hangs up.
func (d *door) firstLine(b *testing.B, method, path, body string, want ...string) {
	b.Helper()
	req := must.Get(http.NewRequestWithContext(b.Context(), method, d.at(path), strings.NewReader(body)))(b)
	req.Header.Set("Authorization", "Bearer ann")
	res := must.Get(http.DefaultClient.Do(req))(b)
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if slices.ContainsFunc(want, func(w string) bool { return strings.Contains(lines.Text(), w) }) {
			return
		}
	}
	b.Fatalf("%s ended without %s: %d", path, want, res.StatusCode)
}
