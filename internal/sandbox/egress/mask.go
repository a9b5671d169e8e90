package egress

import (
	"bytes"
	"io"
	"strconv"
	"unicode/utf8"
)

// mask reads a stream and replaces each secret by as many asterisks, also if its characters
// are written as escapes of JSON. It holds back only a possible beginning of a secret at
// the end of the data so far.
type mask struct {
	r       io.ReadCloser
	secrets [][]byte
	buf     []byte // read and not yet returned
	clear   int    // bytes of buf that can no longer begin a secret
	err     error
}

func newMask(r io.ReadCloser, secrets []string) io.ReadCloser {
	m := &mask{r: r}
	for _, s := range secrets { // the longest first
		m.secrets = append(m.secrets, []byte(s))
	}
	return m
}

func (m *mask) Read(p []byte) (int, error) {
	for m.clear == 0 && m.err == nil {
		var n int
		chunk := make([]byte, max(len(p), 4<<10))
		n, m.err = m.r.Read(chunk)
		m.buf = append(m.buf, chunk[:n]...)
		m.clear = len(m.buf)
		for _, s := range m.secrets {
			m.clear = min(m.clear, hide(m.buf, s))
		}
		if m.err != nil {
			for _, s := range m.secrets {
				hideBeginning(m.buf, s)
			}
			m.clear = len(m.buf)
		}
	}
	n := copy(p, m.buf[:m.clear])
	m.buf, m.clear = m.buf[n:], m.clear-n
	if n == 0 && m.clear == 0 {
		return 0, m.err
	}
	return n, nil
}

func (m *mask) Close() error { return m.r.Close() }

// hide replaces a secret in data by asterisks. It returns the position of a secret's
// beginning that data ends in the middle of, or the end of data.
func hide(data, secret []byte) (begins int) {
	for i := 0; i < len(data); {
		n, found := spelled(data[i:], secret)
		switch {
		case found == len(secret):
			stars(data[i : i+n])
			i += n
		case n == len(data)-i:
			return i
		default:
			i++
		}
	}
	return len(data)
}

func stars(data []byte) {
	for i := range data {
		data[i] = '*'
	}
}

// leastBeginning is the minimum number of bytes of a secret to hide where data ends in the
// middle of it.
const leastBeginning = 4

// hideBeginning replaces the beginning of a secret at the end of data.
func hideBeginning(data, secret []byte) {
	for i := range data {
		if n, found := spelled(data[i:], secret); n == len(data)-i && found < len(secret) {
			if found >= leastBeginning {
				stars(data[i:])
			}
			return
		}
	}
}

// spelled returns how many bytes at the start of data spell the beginning of a secret,
// literally or with escapes of JSON, and how many bytes of the secret they spell.
func spelled(data, secret []byte) (n, found int) {
	if bytes.HasPrefix(data, secret) {
		return len(secret), len(secret)
	}
	if bytes.HasPrefix(secret, data) {
		return len(data), len(data)
	}
	for found < len(secret) && n < len(data) {
		if data[n] == '\\' {
			text, size, whole := escape(data[n:])
			if !whole {
				return len(data), found
			}
			if size > 0 && bytes.HasPrefix(secret[found:], text) {
				n, found = n+size, found+len(text)
				continue
			}
		}
		if data[n] != secret[found] {
			return n, found
		}
		n, found = n+1, found+1
	}
	return n, found
}

// escape decodes the escape of JSON at the start of data: its text and its size, 0 if it is
// none. whole is false if data ends in the middle of an escape.
func escape(data []byte) (text []byte, size int, whole bool) {
	if len(data) < 2 {
		return nil, 0, false
	}
	if data[1] != 'u' {
		if i := bytes.IndexByte([]byte(`"\/bfnrt`), data[1]); i >= 0 {
			return []byte{"\"\\/\b\f\n\r\t"[i]}, 2, true
		}
		return nil, 0, true
	}
	unit := func(data []byte) (u rune, whole, ok bool) {
		for i, c := range data[:min(len(data), 6)] {
			switch {
			case i < 2 && c != `\u`[i], i >= 2 && !bytes.ContainsRune([]byte("0123456789abcdefABCDEF"), rune(c)):
				return 0, true, false
			}
		}
		if len(data) < 6 {
			return 0, false, false
		}
		v, err := strconv.ParseUint(string(data[2:6]), 16, 32)
		return rune(v), true, err == nil
	}
	u, whole, ok := unit(data)
	if !whole || !ok {
		return nil, 0, whole
	}
	if u < 0xd800 || u > 0xdbff { // not the first half of a surrogate pair
		return utf8.AppendRune(nil, u), 6, true
	}
	low, whole, ok := unit(data[6:])
	if !whole || !ok || low < 0xdc00 || low > 0xdfff {
		return nil, 0, whole
	}
	return utf8.AppendRune(nil, 0x10000+(u-0xd800)<<10+(low-0xdc00)), 12, true
}

// hideIn returns a text with its secrets masked.
func hideIn(text string, secrets []string) string {
	data := []byte(text)
	for _, s := range secrets {
		hide(data, []byte(s))
	}
	return string(data)
}
