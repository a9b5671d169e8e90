package mcptest

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// message is a request to a hostile server.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Meta struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	} `json:"params"`
}

// hostile are servers that break the protocol. They do not use the SDK, which prevents
// that. Each has the tool "echo" and misbehaves during a call of it as its name indicates:
// "asks nothing", "asks null" (in the protocol of 2026-07-28), "deaf" and "odd result".
// "pages" lists no tools on a page that is its own successor and stays valid for an hour.
// "loud" writes to its standard error without end. "busy" reports its progress 20,000 times
// and then answers. A server of the kind "flood KIND" sends the message of that kind of
// Floods without end.
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
	"loud": func(message, io.Writer) error {
		for {
			if _, err := os.Stderr.WriteString(strings.Repeat("I am here\n", 6000)); err != nil {
				return err
			}
		}
	},
	"busy": func(m message, out io.Writer) error {
		for range 20_000 {
			if _, err := fmt.Fprintf(out, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`+"\n", m.Params.Meta.Token); err != nil {
				return err
			}
		}
		return answer(m, out, `{"content":[{"type":"text","text":"hi"}]}`)
	},
}

// flood begins the kind of a server that sends one of Floods.
const flood = "flood "

// Floods are the kinds of servers that send one message without end during a call of "echo",
// each with that message. TOKEN stands for the token of the call's progress.
var Floods = map[string]string{
	"progress":  `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":TOKEN,"progress":1,"message":"digging"}}`,
	"stranger":  `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"of nobody","progress":1}}`,
	"log":       `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"I am here"}}`,
	"changed":   `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
	"cancelled": `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`,
	"unknown":   `{"jsonrpc":"2.0","method":"notifications/of/its/own","params":{"a":[1,2,3]}}`,
	"response":  `{"jsonrpc":"2.0","id":987654321,"result":{}}`,
	"error":     `{"jsonrpc":"2.0","id":987654321,"error":{"code":-32601,"message":"no"}}`,
	"ping":      `{"jsonrpc":"2.0","id":7,"method":"ping"}`,
	"roots":     `{"jsonrpc":"2.0","id":7,"method":"roots/list"}`,
	"sampling":  `{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"` + strings.Repeat("say ", 50_000) + `"}}],"maxTokens":1}}`,
	"asks":      `{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"mode":"form","message":"` + strings.Repeat("why? ", 40_000) + `"}}`,
	"large":     `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":TOKEN,"progress":1,"message":"` + strings.Repeat("dig ", 3<<20) + `"}}`,
	"blank":     "",
}

// Flood writes the message of a kind to out until that fails, each between the two texts.
func Flood(out io.Writer, kind string, token json.RawMessage, before, after string) error {
	line := before + strings.ReplaceAll(Floods[kind], "TOKEN", cmp.Or(string(token), "0")) + after
	batch := []byte(strings.Repeat(line, max(1, 64<<10/len(line))))
	for {
		if _, err := out.Write(batch); err != nil {
			return err
		}
	}
}

func answer(m message, out io.Writer, result string) error {
	_, err := fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
	return err
}

// serveHostile answers the requests on the standard input until it ends.
func serveHostile(kind string) error {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var m message
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			return err
		}
		var err error
		switch {
		case m.Method == "tools/call" && strings.HasPrefix(kind, flood):
			return Flood(os.Stdout, strings.TrimPrefix(kind, flood), m.Params.Meta.Token, "", "\n")
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
