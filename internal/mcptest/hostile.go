package mcptest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// message is what a hostile server reads.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

// hostile are servers that break the protocol, written without the SDK, which would not. Each
// has the tool "echo", and does what it is named after during a call of it: "asks nothing",
// "asks null" (in the protocol of 2026-07-28), "deaf" and "odd result"; "pages" lists no tools
// on a page that comes after itself and stays valid for an hour.
var hostile = map[string]func(m message, out io.Writer) error{
	"asks nothing": func(m message, out io.Writer) error {
		_, err := fmt.Fprintln(out, `{"jsonrpc":"2.0","id":1,"method":"elicitation/create"}`)
		return errors.Join(err, answer(m, out, `{"content":[{"type":"text","text":"hi"}]}`))
	},
	"asks null": func(m message, out io.Writer) error {
		return answer(m, out, `{"resultType":"input_required","inputRequests":{"a":null}}`)
	},
	"odd result": func(m message, out io.Writer) error { return answer(m, out, `"done"`) },
	"deaf": func(m message, out io.Writer) error {
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", i); err != nil {
				return err
			}
		}
	},
	"pages": func(m message, out io.Writer) error { return answer(m, out, `{}`) },
}

func answer(m message, out io.Writer, result string) error {
	_, err := fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
	return err
}

// serveHostile answers what is asked on the standard input until that ends.
func serveHostile(kind string) error {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var m message
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			return err
		}
		var err error
		switch {
		case m.Method == "tools/call":
			err = hostile[kind](m, os.Stdout)
		case m.Method == "tools/list" && kind == "pages":
			err = answer(m, os.Stdout, `{"tools":[],"nextCursor":"more","ttlMs":3600000}`)
		case m.Method == "tools/list":
			err = answer(m, os.Stdout, `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`)
		case m.Method == "server/discover" && (kind == "asks null" || kind == "pages"):
			err = answer(m, os.Stdout, `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"hostile","version":"1"}}`)
		case m.Method == "initialize":
			err = answer(m, os.Stdout, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"hostile","version":"1"}}`)
		case m.ID != nil && m.Method != "":
			_, err = fmt.Fprintf(os.Stdout, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", m.ID)
		}
		if err != nil {
			return err
		}
	}
	return in.Err()
}
