package openrath

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// appendText writes s as a JSON string with the escapes of the format. It also escapes
// U+0085, U+2028 and U+2029, which OpenRath's loader treats as line ends.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	for _, c := range s {
		switch c {
		case '"', '\\':
			b = append(b, '\\', byte(c))
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		case '\b':
			b = append(b, `\b`...)
		case '\f':
			b = append(b, `\f`...)
		case '\u0085', '\u2028', '\u2029':
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			if c < 0x20 {
				b = fmt.Appendf(b, `\u%04x`, c)
			} else {
				b = append(b, string(c)...)
			}
		}
	}
	return append(b, '"')
}

func text(s string) string { return string(appendText(nil, s)) }

func textOrNull(s *string) string {
	if s == nil {
		return "null"
	}
	return text(*s)
}

// reprint writes a JSON value with the separators of the format. The order of keys and the
// digits of numbers are unchanged.
func reprint(raw []byte) (string, error) {
	if !json.Valid(raw) { // also rejects values nested too deep for appendValue
		return "", errors.New("not one JSON value")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	b, err := appendValue(nil, dec)
	return string(b), err
}

func appendValue(b []byte, dec *json.Decoder) ([]byte, error) {
	t, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch v := t.(type) {
	case json.Delim:
		return appendNested(b, dec, v)
	case string:
		return appendText(b, v), nil
	case json.Number:
		return append(b, v...), nil
	case bool:
		return fmt.Append(b, v), nil
	}
	return append(b, "null"...), nil
}

func appendNested(b []byte, dec *json.Decoder, open json.Delim) ([]byte, error) {
	b = append(b, byte(open))
	var err error
	for first := true; dec.More(); first = false {
		if !first {
			b = append(b, ", "...)
		}
		if open == '{' {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			name, _ := key.(string)
			b = append(appendText(b, name), ": "...)
		}
		if b, err = appendValue(b, dec); err != nil {
			return nil, err
		}
	}
	end, err := dec.Token()
	if err != nil {
		return nil, err
	}
	return append(b, byte(end.(json.Delim))), nil
}

// fields reads the fields of an object in their order, reprinted.
func fields(raw []byte) ([]field, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("not an object")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(raw, &whole); err != nil {
		return nil, err // also for values nested too deep for reprint
	}
	var all []field
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		value, err := appendValue(nil, dec)
		if err != nil {
			return nil, err
		}
		name, _ := key.(string)
		all = append(all, field{name, string(value)})
	}
	return all, nil
}

// object writes fields as one object.
func object(all []field) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, f := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(text(f.name))
		b.WriteString(": ")
		b.WriteString(f.value)
	}
	b.WriteByte('}')
	return b.String()
}

// split separates the fields with the given names from the others.
func split(all []field, names ...string) (known map[string]string, unknown []field) {
	known = map[string]string{}
	for _, f := range all {
		isKnown := false
		for _, n := range names {
			isKnown = isKnown || n == f.name
		}
		if isKnown {
			known[f.name] = f.value
		} else {
			unknown = append(unknown, f)
		}
	}
	return known, unknown
}
