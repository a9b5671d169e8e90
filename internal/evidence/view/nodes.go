package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/sandbox"
)

// NodeState returns the status of a node in a word.
func NodeState(n messages.Node) string {
	switch {
	case n.Dead:
		return "dead"
	case n.Silent > 0:
		return fmt.Sprintf("silent %ds", n.Silent/1000)
	case n.Draining:
		return "draining"
	case RelaysOnly(n):
		return "relay only"
	}
	if n.Leaked > 0 {
		return fmt.Sprintf("serving, %d leaked", n.Leaked)
	}
	return "serving"
}

// RelaysOnly reports whether a node executes no runs.
func RelaysOnly(n messages.Node) bool { return len(n.Pools) == 0 }

// FreeSlots returns the free and total slots of a node.
func FreeSlots(n messages.Node) string {
	if RelaysOnly(n) || n.Dead {
		return "-"
	}
	return fmt.Sprintf("%d/%d", n.Free, n.Slots)
}

// SlotsText returns the free and total slots of a node in words.
func SlotsText(n messages.Node) string {
	if RelaysOnly(n) || n.Dead {
		return "none"
	}
	return fmt.Sprintf("%d of %d are free", n.Free, n.Slots)
}

// SandboxText describes the isolation of agents' commands on a node.
func SandboxText(n messages.Node) string {
	switch {
	case RelaysOnly(n):
		return "none"
	case n.Isolation == "":
		return "none: commands of agents are refused"
	case n.Isolation == string(sandbox.IsolationProcess):
		return n.Isolation + ": nothing confines commands"
	}
	return n.Isolation
}

// ProgramsText lists the programs on a node that are available to agents' commands.
func ProgramsText(n messages.Node) string {
	switch {
	case RelaysOnly(n) || n.Isolation == "":
		return "none"
	case !slices.Contains(n.Programs, "sh"):
		return "no shell: each command of an agent fails"
	}
	return strings.Join(n.Programs, ", ")
}

// ModelText returns the default model of a node, or the reason why it is unavailable.
func ModelText(n messages.Node) string {
	switch {
	case RelaysOnly(n):
		return "none"
	case n.ModelError != "":
		return "none: " + n.ModelError
	}
	return cmp.Or(n.Model, "no default")
}

// CapacityText describes the messages that a nearly full stream, or the disk of all
// streams, still accepts.
func CapacityText(f messages.StreamFill) string {
	takes := map[string]string{
		messages.RoomAll: "takes everything", messages.RoomOpen: "takes no new runs", messages.RoomEnds: "lets runs only end", messages.RoomNone: "takes nothing",
	}[f.Room]
	if f.Stream == messages.FullDisk {
		inodes := ""
		if f.Inodes != nil {
			inodes = fmt.Sprintf(" and %d inodes (files and directories)", *f.Inodes)
		}
		text := fmt.Sprintf("%d MiB%s free, %s; free some space there", (f.MaxBytes-f.Bytes)>>20, inodes, takes)
		if f.Reason != "" {
			text += "; the server has failed and starts again when there is room: " + f.Reason
		}
		return text
	}
	if strings.HasPrefix(f.Stream, "EV_") {
		return fmt.Sprintf("%d %% full: %s; make room with %q", 100*f.Bytes/max(f.MaxBytes, 1), takes, "rath cluster prune")
	}
	// Archiving frees no space there, and no space is reserved for ends of runs.
	with := `"rath cluster provision"`
	if f.Stream == messages.StreamBlob {
		with = `"rath cluster prune --blobs" or ` + with
	}
	switch {
	case f.MaxBytes > 0 && f.Bytes >= f.MaxBytes:
		takes = "takes nothing"
	case f.Room == messages.RoomOpen:
		takes += "; open ones go on until it is full"
	}
	return fmt.Sprintf("%d %% full: %s; make room with %s", 100*f.Bytes/max(f.MaxBytes, 1), takes, with)
}
