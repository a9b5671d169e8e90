package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// The SDK rejects a whole result for one part that it cannot read. The parts are therefore
// read one by one first. An unreadable part is replaced by one whose _meta has the reason
// under this key.
const lostKey = "rath/lost"

// mend returns the answer to a request of a method in a form that the SDK can read.
func mend(method string, data []byte) []byte {
	var fix func(map[string]json.RawMessage)
	switch method {
	case "tools/call":
		fix = mendResult
	case "tools/list":
		fix = mendList
	default:
		return data
	}
	var message, result map[string]json.RawMessage
	if json.Unmarshal(data, &message) != nil || json.Unmarshal(message["result"], &result) != nil || result == nil {
		return data
	}
	fix(result)
	var err error
	if message["result"], err = json.Marshal(result); err != nil {
		return data
	}
	mended, err := json.Marshal(message)
	if err != nil {
		return data
	}
	return mended
}

// mendList mends the tools of a page.
func mendList(result map[string]json.RawMessage) {
	var cursor string
	if json.Unmarshal(result["nextCursor"], &cursor) != nil {
		delete(result, "nextCursor")
	}
	var tools []json.RawMessage
	if json.Unmarshal(result["tools"], &tools) != nil {
		return
	}
	for i, raw := range tools {
		var t sdk.Tool
		err := json.Unmarshal(raw, &t)
		if err == nil && !bytes.Equal(raw, []byte("null")) {
			continue
		}
		var named struct {
			Name json.RawMessage `json:"name"`
		}
		_ = json.Unmarshal(raw, &named) // "" if it is not an object
		name := ""
		_ = json.Unmarshal(named.Name, &name)
		why := "it is no object"
		if err != nil {
			why = err.Error()
		}
		tools[i] = object("name", name, "inputSchema", map[string]any{"type": "object"}, "_meta", map[string]any{lostKey: clip(why, 200)})
	}
	if data, err := json.Marshal(tools); err == nil {
		result["tools"] = data
	}
}

// mendResult mends the content of a result.
func mendResult(result map[string]json.RawMessage) {
	var pieces []json.RawMessage
	content := bytes.TrimSpace(result["content"])
	switch {
	case len(content) == 0 || string(content) == "null":
	case content[0] != '[':
		pieces = []json.RawMessage{content}
	case json.Unmarshal(content, &pieces) != nil:
		return
	}
	for i, p := range pieces {
		pieces[i] = mendPiece(p)
	}
	if pieces == nil {
		pieces = []json.RawMessage{}
	}
	if data, err := json.Marshal(pieces); err == nil {
		result["content"] = data
	}
	if _, ok := result["isError"]; ok {
		failed := false
		if err := json.Unmarshal(result["isError"], &failed); err != nil {
			failed = strings.EqualFold(strings.Trim(string(result["isError"]), `"`), "true")
		}
		result["isError"] = json.RawMessage(strconv.FormatBool(failed))
	}
}

// mendPiece returns a piece of content with only the fields of its type.
func mendPiece(raw json.RawMessage) json.RawMessage {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return object("type", "text", "text", text)
	}
	var p map[string]json.RawMessage
	if json.Unmarshal(raw, &p) != nil || p == nil {
		return lost("piece", "it is no object")
	}
	field := func(of map[string]json.RawMessage, name string) (s string) {
		_ = json.Unmarshal(of[name], &s) // "" if it is not a string
		return s
	}
	kind := field(p, "type")
	switch kind {
	case "text":
		if json.Unmarshal(p["text"], &text) != nil {
			return lost(kind, "its text is no string")
		}
		return object("type", kind, "text", text)
	case "image", "audio":
		data, mime, err := binary(field(p, "data"))
		if err != nil {
			return lost(kind, err.Error())
		}
		if own := field(p, "mimeType"); own != "" {
			mime = own
		}
		return object("type", kind, "mimeType", mime, "data", data)
	case "resource_link":
		return object("type", kind, "uri", field(p, "uri"), "name", field(p, "name"), "description", field(p, "description"), "mimeType", field(p, "mimeType"))
	case "resource":
		var r map[string]json.RawMessage
		_ = json.Unmarshal(p["resource"], &r) // nil if it is not an object
		inner := map[string]any{"uri": field(r, "uri"), "mimeType": field(r, "mimeType"), "text": field(r, "text")}
		if blob := field(r, "blob"); blob != "" {
			data, _, err := binary(blob)
			if err != nil {
				return lost(kind, err.Error())
			}
			inner["blob"] = data
		}
		return object("type", kind, "resource", inner)
	}
	return lost(kind, "this client does not read content of its type")
}

// binary decodes base64 of any alphabet, with or without padding and white space, or as the
// data of a URL.
func binary(text string) (data []byte, mime string, err error) {
	if rest, ok := strings.CutPrefix(text, "data:"); ok {
		head, body, found := strings.Cut(rest, ",")
		if head, ok = strings.CutSuffix(head, ";base64"); !found || !ok {
			return nil, "", errors.New("its data is a URL without base64")
		}
		mime, _, _ = strings.Cut(head, ";")
		text = body
	}
	text = strings.NewReplacer("-", "+", "_", "/", "\n", "", "\r", "", " ", "", "\t", "").Replace(text)
	if data, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "=")); err != nil {
		return nil, "", errors.New("its data is no base64")
	}
	return data, mime, nil
}

// lost stands for a piece that cannot be read.
func lost(kind, why string) json.RawMessage {
	return object("type", "text", "text", "", "_meta", map[string]any{lostKey: map[string]any{"type": clip(kind, 40), "why": why}})
}

// object returns a JSON object of names and values.
func object(pairs ...any) json.RawMessage {
	o := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		o[pairs[i].(string)] = pairs[i+1]
	}
	data, err := json.Marshal(o)
	if err != nil {
		return json.RawMessage("null")
	}
	return data
}
