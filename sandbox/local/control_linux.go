package local

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A host and a supervisor speak over a pair of sockets: a length in four bytes and JSON.
// The host gives one job at a time, with the files of the command, or says that it is to
// stop; the supervisor answers each job with a result. Its end of the sockets says that
// the other one is gone.

// order is what a host says.
type order struct {
	N    int  `json:"n"`              // of the job
	Job  *job `json:"job,omitempty"`  // nil: stop it
	Kill int  `json:"kill,omitempty"` // to a holder: this supervisor; else start one
	UID  int  `json:"uid,omitempty"`  // of the one to start, see Options
	GID  int  `json:"gid,omitempty"`
}

// mostOrder bounds an order: arguments and environment are bounded by the kernel.
const mostOrder = 64 << 20

// frame returns what goes over the sockets.
func frame(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(data) > mostOrder {
		return nil, fmt.Errorf("%d bytes are more than a command can have", len(data))
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(data))), data...), nil
}

// give sends an order with files.
func give(c *net.UnixConn, o order, files []*os.File) error {
	data, err := frame(o)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	if err := c.SetWriteDeadline(time.Now().Add(stopGrace)); err != nil {
		return err
	}
	// The files go with the first byte.
	n, _, err := c.WriteMsgUnix(data, rights, nil)
	if err == nil && n < len(data) {
		_, err = c.Write(data[n:])
	}
	return err
}

// assignment is a job that a supervisor was given.
type assignment struct {
	n     int
	job   job
	files []int         // of the command: its three and its directory
	stop  chan struct{} // closed when the command is to stop
	once  sync.Once
}

func (a *assignment) end() { a.once.Do(func() { close(a.stop) }) }

// assignments hands on the orders of the host until it is gone.
func assignments(out chan<- *assignment) {
	defer close(out)
	var now *assignment
	for {
		o, files, err := takeOrder()
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

// takeOrder reads an order and the files that came with it.
func takeOrder() (o order, files []int, err error) {
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

// report sends a result.
func report(r result) error {
	data, err := frame(r)
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

// hear reads a result.
func hear(c io.Reader) (r result, err error) {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return r, err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > mostOrder {
		return r, fmt.Errorf("a result of %d bytes", size)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(c, data); err != nil {
		return r, err
	}
	return r, json.Unmarshal(data, &r)
}
