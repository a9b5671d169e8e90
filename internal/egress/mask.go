package egress

import (
	"bytes"
	"io"
	"strings"
)

// mask reads a stream with each secret in it replaced by as many asterisks.
type mask struct {
	r       io.ReadCloser
	secrets [][]byte
	longest int
	buf     []byte // read and not given on
	clear   int    // bytes of buf that no secret can begin in any more
	err     error
}

func newMask(r io.ReadCloser, secrets []string) io.ReadCloser {
	m := &mask{r: r}
	for _, s := range secrets { // the longest first
		m.secrets = append(m.secrets, []byte(s))
		m.longest = max(m.longest, len(s))
	}
	return m
}

func (m *mask) Read(p []byte) (int, error) {
	for m.clear == 0 && m.err == nil {
		var n int
		chunk := make([]byte, max(len(p), 4<<10))
		n, m.err = m.r.Read(chunk)
		m.buf = append(m.buf, chunk[:n]...)
		for _, s := range m.secrets {
			hide(m.buf, s)
		}
		if m.clear = len(m.buf) - m.longest + 1; m.err != nil {
			for _, s := range m.secrets {
				hideBeginning(m.buf, s)
			}
			m.clear = len(m.buf)
		}
		m.clear = max(m.clear, 0)
	}
	n := copy(p, m.buf[:m.clear])
	m.buf, m.clear = m.buf[n:], m.clear-n
	if n == 0 && m.clear == 0 {
		return 0, m.err
	}
	return n, nil
}

func (m *mask) Close() error { return m.r.Close() }

// hide replaces a secret in data by asterisks.
func hide(data, secret []byte) {
	for {
		i := bytes.Index(data, secret)
		if i < 0 {
			return
		}
		for j := range secret {
			data[i+j] = '*'
		}
		data = data[i+len(secret):]
	}
}

// leastBeginning is the fewest bytes of a secret that are hidden where data ends in the
// middle of it.
const leastBeginning = 4

// hideBeginning replaces the beginning of a secret with which data ends.
func hideBeginning(data, secret []byte) {
	for n := min(len(secret)-1, len(data)); n >= leastBeginning; n-- {
		if tail := data[len(data)-n:]; bytes.Equal(tail, secret[:n]) {
			for i := range tail {
				tail[i] = '*'
			}
			return
		}
	}
}

// hideIn returns a text without the secrets.
func hideIn(text string, secrets []string) string {
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, strings.Repeat("*", len(s)))
	}
	return text
}
