package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/rathcluster/rath/client"
)

// Attachment is the file that a listening node leaves in its store for the tools of the
// same user: its process, the address of its server, such as nats://127.0.0.1:4222, the
// durability that it promises, and the login.
type Attachment struct {
	PID   int    `json:"pid"`
	URL   string `json:"url"`
	Level string `json:"level"`
	// Store is the directory, which distinguishes the store from a copy of it.
	Store string `json:"store,omitempty"`
	// User and Password have the rights of a node.
	User     string `json:"user"`
	Password string `json:"password"`
	// ToolUser and ToolPassword are for programs that have tools.
	ToolUser     string `json:"tool_user"`
	ToolPassword string `json:"tool_password"`
	// OperatorUser and OperatorPassword may delete and purge.
	OperatorUser     string `json:"operator_user"`
	OperatorPassword string `json:"operator_password"`
	// Gossip is the address at which other nodes of this machine join, with GossipKey, see
	// node.Options.Dev; "" accepts none.
	Gossip    string `json:"gossip,omitempty"`
	GossipKey string `json:"gossip_key,omitempty"`
	// HTTP is the address of the pages for browsers and HTTPLocal the one on this machine,
	// where Opener is the secret for login codes.
	HTTP      string `json:"http,omitempty"`
	HTTPLocal string `json:"http_local,omitempty"`
	Opener    string `json:"opener,omitempty"`
}

func attachFile(store string) string { return filepath.Join(store, "node.json") }

// Write leaves the attachment in a store directory, readable by this user only.
func (a *Attachment) Write(store string) error {
	in := *a
	var err error
	if in.Store, err = filepath.Abs(store); err != nil {
		return fmt.Errorf("node: write %s: %w", attachFile(store), err)
	}
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	tmp := attachFile(store) + ".new"
	if err := errors.Join(os.WriteFile(tmp, data, 0o600), os.Rename(tmp, attachFile(store))); err != nil {
		return fmt.Errorf("node: write %s: %w", attachFile(store), err)
	}
	return nil
}

// RemoveAttachment removes this process's attachment.
func RemoveAttachment(store string) error {
	name := attachFile(store)
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var a Attachment
	if err != nil || json.Unmarshal(data, &a) != nil || a.PID != os.Getpid() {
		return err
	}
	return os.Remove(name)
}

// ClearAttachment removes the attachment that a killed node has left in a store. The caller
// has made sure that no other process holds the store.
func ClearAttachment(store string) error {
	err := os.Remove(attachFile(store))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// ReadAttachment returns the attachment of the node that runs over a store directory. It
// fails with client.ErrUnreachable without one. A node that died may have left one:
// connecting shows that.
func ReadAttachment(store string) (Attachment, error) {
	var a Attachment
	name := attachFile(store)
	data, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR): // the store is a file
		return a, fmt.Errorf("node: no node runs here: there is no %s: %w", name, client.ErrUnreachable)
	case err != nil:
		return a, fmt.Errorf("node: %w", err)
	}
	if err := json.Unmarshal(data, &a); err != nil || a.URL == "" {
		return Attachment{}, fmt.Errorf("node: %s has no address of a node; remove it: %w", name, client.ErrUnreachable)
	}
	here, hereErr := os.Stat(store)
	if there, err := os.Stat(a.Store); err == nil && hereErr == nil && !os.SameFile(here, there) {
		return Attachment{}, fmt.Errorf("node: no node runs here: %s is a copy, of a node that runs over %s: %w", name, a.Store, client.ErrUnreachable)
	}
	return a, nil
}
