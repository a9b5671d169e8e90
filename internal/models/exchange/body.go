package exchange

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/rathcluster/rath/llm"
)

// Body writes a request. The members of extra take precedence over those of the
// request, and null removes one.
func Body(request any, extra json.RawMessage) ([]byte, error) {
	body, err := Marshal(request)
	if err == nil && len(extra) > 0 {
		body, err = merge(body, extra)
	}
	if err != nil {
		return nil, &llm.Error{Code: llm.CodeInvalidRequest, Message: fmt.Sprintf("encode the request: %v", err)}
	}
	return body, nil
}

func merge(body []byte, extra json.RawMessage) ([]byte, error) {
	var all, more map[string]json.RawMessage
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(extra, &more); err != nil {
		return nil, fmt.Errorf("extra: %w", err)
	}
	for k, v := range more {
		if string(v) == "null" {
			delete(all, k)
		} else {
			all[k] = v
		}
	}
	return Marshal(all)
}

// Marshal is json.Marshal without the escapes that are meant for web pages.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// quote returns a text as JSON.
func quote(s string) json.RawMessage {
	data, err := Marshal(llm.CleanText(s))
	if err != nil {
		return nil
	}
	return data
}
