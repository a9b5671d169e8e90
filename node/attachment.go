package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rathcluster/rath/client"
)

// attachment is what a node that listens leaves in its store for the tools of
// the same user.
type attachment struct {
	PID      int    `json:"pid"`
	URL      string `json:"url"`
	User     string `json:"user"`
	Password string `json:"password"`
	Level    string `json:"level"`
	// ToolUser and ToolPassword are for programs that have tools.
	ToolUser     string `json:"tool_user"`
	ToolPassword string `json:"tool_password"`
	// OperatorUser and OperatorPassword may delete and purge.
	OperatorUser     string `json:"operator_user"`
	OperatorPassword string `json:"operator_password"`
}

func attachFile(store string) string { return filepath.Join(store, "node.json") }

// announce writes how to reach this node into its store, readable by this user
// only.
func (n *Instance) announce() error {
	if n.server == nil || n.server.URL() == "" {
		return nil
	}
	user, password := n.server.Node()
	toolUser, toolPassword := n.server.Tool()
	operatorUser, operatorPassword := n.server.Operator()
	data, err := json.Marshal(attachment{
		PID: os.Getpid(), URL: n.server.URL(), User: user, Password: password, Level: n.o.Level,
		ToolUser: toolUser, ToolPassword: toolPassword, OperatorUser: operatorUser, OperatorPassword: operatorPassword,
	})
	if err != nil {
		return err
	}
	tmp := attachFile(n.o.Store) + ".new"
	if err := errors.Join(os.WriteFile(tmp, data, 0o600), os.Rename(tmp, attachFile(n.o.Store))); err != nil {
		return fmt.Errorf("node: write %s: %w", attachFile(n.o.Store), err)
	}
	return nil
}

func removeIfOurs(name string) error {
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var a attachment
	if err != nil || json.Unmarshal(data, &a) != nil || a.PID != os.Getpid() {
		return err
	}
	return os.Remove(name)
}

// ListensAt returns the address at which a node listens that runs over a store
// directory, such as nats://127.0.0.1:4222, and "" if none does or says so.
func ListensAt(store string) string {
	a, err := readAttachment(attachFile(store))
	if err != nil {
		return ""
	}
	return a.URL
}

func readAttachment(name string) (attachment, error) {
	var a attachment
	data, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return a, fmt.Errorf("node: no node runs here: there is no %s: %w", name, client.ErrUnreachable)
	case err != nil:
		return a, fmt.Errorf("node: %w", err)
	}
	if err := json.Unmarshal(data, &a); err != nil || a.URL == "" {
		return a, fmt.Errorf("node: %s does not say where a node listens; remove it: %w", name, client.ErrUnreachable)
	}
	return a, nil
}
