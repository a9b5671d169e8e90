package confinement

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// A host and a supervisor speak over a pair of sockets: a length in four bytes and JSON.
// The host gives one job at a time, with the files of the command, or says that it is to
// stop; the supervisor answers each job with a result. Its end of the sockets says that
// the other one is gone.

// Order is what a host says.
type Order struct {
	N    int  `json:"n"`              // of the job
	Job  *Job `json:"job,omitempty"`  // nil: stop it
	Kill int  `json:"kill,omitempty"` // to a holder: this supervisor; else start one
	UID  int  `json:"uid,omitempty"`  // of the one to start, see Options
	GID  int  `json:"gid,omitempty"`
}

// Job is what a supervisor is told to do.
type Job struct {
	Argv     []string `json:"argv"`
	Env      []string `json:"env"`
	Confine  bool     `json:"confine,omitempty"`
	Probe    string   `json:"probe,omitempty"` // a file to fail to read, instead of running a command
	ABI      int      `json:"abi,omitempty"`   // no later Landlock ABI than this
	ReadOnly []string `json:"read_only,omitempty"`
	Tmp      string   `json:"tmp"`
	Groups   []string `json:"groups,omitempty"`  // files by which a thread enters those for the command
	Net      bool     `json:"net,omitempty"`     // they are no limit that was asked for
	Tasks    int      `json:"tasks"`             // more are taken for a fork bomb
	Disk     int64    `json:"disk,omitempty"`    // bytes that its directories may hold
	Network  bool     `json:"network,omitempty"` // the command may use the network of its namespace
	Held     Use      `json:"held,omitzero"`     // what they take where that is more
	Port     int      `json:"port,omitempty"`    // to connect to, instead of running a command
}

// Use is the room that files take of a disk.
type Use struct {
	Bytes int64 `json:"bytes"`
	Files int64 `json:"files"` // and directories: inodes
}

// Result is what is known of a command whose tree is gone.
type Result struct {
	Code    int    `json:"code"`              // exit code, or 128 plus the signal
	Signal  int    `json:"signal,omitempty"`  // the signal that ended it
	Stopped bool   `json:"stopped,omitempty"` // stop came before it ended by itself
	Refused string `json:"refused,omitempty"` // why it could not be started
	Failed  string `json:"failed,omitempty"`  // why the supervisor failed
	Full    bool   `json:"full,omitempty"`    // it was killed at the limit of disk, or left more
	Held    Use    `json:"held,omitzero"`     // of disk, where it is more than the limit
	Note    string `json:"note,omitempty"`    // for people, about how it ended
}

// mostOrder bounds an order: arguments and environment are bounded by the kernel.
const mostOrder = 64 << 20

// Frame returns what goes over the sockets.
func Frame(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(data) > mostOrder {
		return nil, fmt.Errorf("%d bytes are more than a command can have", len(data))
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(data))), data...), nil
}

// Hear reads a result.
func Hear(c io.Reader) (r Result, err error) {
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
