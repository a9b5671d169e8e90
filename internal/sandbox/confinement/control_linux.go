package confinement

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"
)

// assignment is a job of a supervisor, with its files.
type assignment struct {
	n     int
	job   Job
	files []int         // of the command: its three and its directory
	stop  chan struct{} // closed when the command is to stop
	once  sync.Once
}

func (a *assignment) end() { a.once.Do(func() { close(a.stop) }) }

// assignments passes on the orders of the host until the host is gone.
func assignments(out chan<- *assignment) {
	defer close(out)
	var now *assignment
	for {
		o, files, err := Take()
		switch {
		case err != nil:
			if now != nil {
				now.end()
			}
			return
		case o.Job != nil:
			now = &assignment{n: o.N, job: *o.Job, files: files, stop: make(chan struct{})}
			out <- now
		case now != nil && now.n == o.N:
			now.end()
		}
	}
}

// Take reads an order and its files.
func Take() (o Order, files []int, err error) {
	var head [4]byte
	oob := make([]byte, unix.CmsgSpace(8*4))
	got := 0
	for got < len(head) {
		n, oobn, _, _, err := unix.Recvmsg(controlFD, head[got:], oob, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return o, files, err
		}
		if n == 0 {
			return o, files, io.EOF
		}
		got += n
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return o, files, err
		}
		for _, m := range messages {
			more, err := unix.ParseUnixRights(&m)
			if err != nil {
				return o, files, err
			}
			files = append(files, more...)
		}
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > mostOrder {
		return o, files, fmt.Errorf("an order of %d bytes", size)
	}
	data := make([]byte, size)
	for rest := data; len(rest) > 0; {
		n, err := unix.Read(controlFD, rest)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return o, files, err
		}
		if n == 0 {
			return o, files, io.ErrUnexpectedEOF
		}
		rest = rest[n:]
	}
	return o, files, json.Unmarshal(data, &o)
}

// Report sends a result.
func Report(r Result) error {
	data, err := Frame(r)
	if err != nil {
		return err
	}
	for len(data) > 0 {
		n, err := unix.Write(controlFD, data)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
