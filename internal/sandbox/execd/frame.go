package execd

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/rathcluster/rath/sandbox"
)

// A connection carries frames: a kind, the length of the payload as four bytes, and the
// payload. One connection holds the daemon; each command has one of its own.
const (
	kindHold    byte = iota + 1 // to the daemon, first: hold it from now on
	kindPing                    // to the daemon: the holder is alive
	kindOpen                    // to the daemon: an Opening
	kindOpened                  // to the holder: opened
	kindRun                     // to the daemon, first: a request
	kindInput                   // to the daemon: standard input, at most window bytes beyond the taken ones
	kindEnd                     // to the daemon: the end of standard input
	kindCancel                  // to the daemon: stop the command
	kindTaken                   // to the client: the number of input bytes that were taken
	kindOutput                  // to the client: output of both streams, as it is written
	kindResult                  // to the client, last: a result
	kindCarry                   // to the daemon, first: it may carry a connection of a command
	kindCarried                 // to the holder: the bytes of a command's connection follow
	kindFiles                   // to the daemon, first: a request of package mirror follows
	mostPayload = 16 << 20
	window      = 128 << 10
)

// version is the version of the protocol. Both ends are the same program, unless it was
// replaced.
const version = 1

type (
	// hold is the first message of a holder.
	hold struct {
		Version int
		Lease   time.Duration
	}
	// opened answers an Opening.
	opened struct {
		Capabilities sandbox.Capabilities
		Error        string
	}
	// request is a sandbox.Cmd. Names and values are bytes, which need not be UTF-8.
	request struct {
		ID      string
		Argv    [][]byte
		Env     [][2][]byte
		Dir     []byte
		Input   bool // standard input follows
		Timeout time.Duration
		Keep    int
		Offload bool
		Port    int
	}
	// result is the result of Exec.
	result struct {
		Exit    sandbox.Exit
		Error   string
		Wrapped int // the index in wrapped, plus one
	}
)

// newRequest encodes a command.
func newRequest(c sandbox.Cmd) request {
	r := request{ID: c.ID, Dir: []byte(c.Dir), Input: c.Stdin != nil, Timeout: c.Timeout, Keep: c.Output, Offload: c.Offload != nil, Port: c.Port}
	for _, a := range c.Argv {
		r.Argv = append(r.Argv, []byte(a))
	}
	for k, v := range c.Env {
		r.Env = append(r.Env, [2][]byte{[]byte(k), []byte(v)})
	}
	return r
}

// cmd decodes the command, with the variables of an image below its own.
func (r request) cmd(image map[string]string) sandbox.Cmd {
	c := sandbox.Cmd{ID: r.ID, Dir: string(r.Dir), Timeout: r.Timeout, Output: r.Keep, Port: r.Port, Env: maps.Clone(image)}
	for _, a := range r.Argv {
		c.Argv = append(c.Argv, string(a))
	}
	for _, v := range r.Env {
		if c.Env == nil {
			c.Env = make(map[string]string)
		}
		c.Env[string(v[0])] = string(v[1])
	}
	return c
}

// wrapped are the errors that keep their identity over the connection.
var wrapped = []error{sandbox.ErrClosed, sandbox.ErrUnsupported, sandbox.ErrPath, sandbox.ErrLost, fs.ErrNotExist, fs.ErrPermission}

func newResult(e sandbox.Exit, err error) result {
	r := result{Exit: e}
	if err == nil {
		return r
	}
	r.Error = err.Error()
	for i, w := range wrapped {
		if errors.Is(err, w) {
			r.Wrapped = i + 1
			break
		}
	}
	return r
}

// remoteError is an error of the daemon.
type remoteError struct {
	text string
	is   error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }

func (r result) err() error {
	if r.Error == "" {
		return nil
	}
	e := &remoteError{text: r.Error}
	if r.Wrapped > 0 && r.Wrapped <= len(wrapped) {
		e.is = wrapped[r.Wrapped-1]
	}
	return e
}

// stream is a connection that carries frames. One goroutine reads; any may send.
type stream struct {
	net.Conn
	mu sync.Mutex // guards sending
}

func (s *stream) send(kind byte, payload []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	head := binary.LittleEndian.AppendUint32([]byte{kind}, uint32(len(payload)))
	buffers := net.Buffers{head, payload}
	_, err := buffers.WriteTo(s.Conn)
	return err
}

func (s *stream) sendValue(kind byte, v any) error {
	data, err := encode(v)
	if err != nil {
		return err
	}
	return s.send(kind, data)
}

func (s *stream) receive() (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(s.Conn, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.LittleEndian.Uint32(head[1:])
	if size > mostPayload {
		return 0, nil, fmt.Errorf("a message of %d bytes is more than %d", size, mostPayload)
	}
	payload = make([]byte, size)
	_, err = io.ReadFull(s.Conn, payload)
	return head[0], payload, err
}

// receiveValue reads a frame of the given kind.
func (s *stream) receiveValue(kind byte, v any) error {
	got, payload, err := s.receive()
	if err != nil {
		return err
	}
	if got != kind {
		return fmt.Errorf("a message of kind %d where %d is expected", got, kind)
	}
	return decode(payload, v)
}

func encode(v any) (payload []byte, err error) {
	payload, err = json.Marshal(v)
	if err == nil && len(payload) > mostPayload {
		err = fmt.Errorf("%d bytes are more than a message holds, %d", len(payload), mostPayload)
	}
	return payload, err
}

func decode(payload []byte, v any) error { return json.Unmarshal(payload, v) }
