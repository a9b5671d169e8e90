package confinement

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// A host and a supervisor communicate over a socket pair. A message is a length in four
// bytes and JSON. The host sends one job at a time, with the files of the command, or a
// request to stop the job. The supervisor answers each job with a result. The end of the
// stream means that the peer is gone.

// Order is a message of a host.
type Order struct {
	N    int  `json:"n"`              // number of the job
	Job  *Job `json:"job,omitempty"`  // nil: stop it
	Kill int  `json:"kill,omitempty"` // to a holder: this supervisor; else start one
	UID  int  `json:"uid,omitempty"`  // user ID of the supervisor to start, see Options
	GID  int  `json:"gid,omitempty"`
}

// Job is the task of a supervisor.
type Job struct {
	Argv     []string `json:"argv"`
	Env      []string `json:"env"`
	Confine  bool     `json:"confine,omitempty"`
	Probe    string   `json:"probe,omitempty"` // a file to fail to read, instead of running a command
	ABI      int      `json:"abi,omitempty"`   // the latest Landlock ABI to use
	ReadOnly []string `json:"read_only,omitempty"`
	Tmp      string   `json:"tmp"`
	Groups   []string `json:"groups,omitempty"`  // files through which a thread enters the command's groups
	Net      bool     `json:"net,omitempty"`     // the groups enforce no requested limit
	Tasks    int      `json:"tasks"`             // above this number, a fork bomb
	Disk     int64    `json:"disk,omitempty"`    // maximum bytes in its directories
	Network  bool     `json:"network,omitempty"` // the command may use the network of its namespace
	Held     Use      `json:"held,omitzero"`     // the usage left by earlier commands where it is above the limit
	Port     int      `json:"port,omitempty"`    // to connect to, instead of running a command
}

// Use is the space that files use on a disk.
type Use struct {
	Bytes int64 `json:"bytes"`
	Files int64 `json:"files"` // and directories: inodes
}

// Result is the outcome of a command whose process tree has ended.
type Result struct {
	Code    int    `json:"code"`              // exit code, or 128 plus the signal
	Signal  int    `json:"signal,omitempty"`  // the signal that ended it
	Stopped bool   `json:"stopped,omitempty"` // stop came before the command ended by itself
	Refused string `json:"refused,omitempty"` // why the command could not be started
	Failed  string `json:"failed,omitempty"`  // why the supervisor failed
	Full    bool   `json:"full,omitempty"`    // it was killed at the limit of disk, or left more than the limit
	Held    Use    `json:"held,omitzero"`     // disk usage, where it is above the limit
	Note    string `json:"note,omitempty"`    // for users, about the outcome
}

// mostOrder bounds an order: arguments and environment are bounded by the kernel.
const mostOrder = 64 << 20

// Frame encodes a message for the socket pair.
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

// Hear receives a result.
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
