//go:build e2e && linux

package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
)

var flagFlood = flag.Duration("flood", 30*time.Second, "how long TestMCPFlood floods a node")

// floodServer is an MCP server of sh that reports its progress without end during a call.
const floodServer = `
while IFS= read -r line; do
  id=${line#*'"id":'}; id=${id%%[,\}]*}
  answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
  case $line in
  *'"initialize"'*) answer '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"flood","version":"1"}}';;
  *'"tools/list"'*) answer '{"tools":[{"name":"echo","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}';;
  *'"tools/call"'*) exec yes '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"1","progress":1,"message":"digging"}}';;
  *'"id"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id";;
  esac
done`

const floodScript = `
-- box --
user: box
not result: box__echo
call: box__echo {}

-- far --
user: far
not result: far__echo
call: far__echo {}

-- else --

done
`

// TestMCPFlood floods a node from servers of a sandbox and of a URL, one run after the other,
// whose calls may be made again. Each run ends, with the reason in its record, and the node
// stays small.
func TestMCPFlood(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
			return
		}
		answer := func(result string) { fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result) }
		w.Header().Set("Content-Type", "application/json")
		switch m.Method {
		case "initialize":
			answer(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"flood","version":"1"}}`)
		case "tools/list":
			answer(`{"tools":[{"name":"echo","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}`)
		case "tools/call":
			w.Header().Set("Content-Type", "text/event-stream")
			batch := []byte(strings.Repeat(`data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"1","progress":1,"message":"digging"}}`+"\n\n", 1000))
			for {
				if _, err := w.Write(batch); err != nil {
					return
				}
			}
		case "server/discover":
			w.WriteHeader(http.StatusBadRequest)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	defer srv.Close()
	d := newDesk(t, "RATH_MCP=mcp.yaml")
	must.Do(t, os.Mkdir(filepath.Join(d.dir, "work"), 0o755))
	d.file("work/flood.sh", floodServer)
	d.file("mcp.yaml", "servers:\n  box: {command: sh flood.sh}\n  far: {url: "+srv.URL+"}\n")
	d.file("m.txtar", floodScript)
	dev, _ := d.dev("--script", "m.txtar")
	for until := time.Now().Add(*flagFlood); time.Now().Before(until); {
		for _, name := range []string{"box", "far"} {
			d.rath("run", "-C", "work", "--mcp", name, "-m", name, "-q").want(t, 0, "done")
			d.rath("show", "@last", "--format", "json").want(t, 0, "MCP server "+name+" during "+name+"__echo: it sent unsolicited messages")
		}
	}
	status := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", dev.cmd.Process.Pid)))(t)
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kb := must.Get(strconv.Atoi(strings.Fields(after)[0]))(t)
	t.Logf("at most %d MB resident", kb>>10)
	if kb > 300<<10 {
		t.Errorf("the node took %d MB", kb>>10)
	}
	dev.stop()
}
