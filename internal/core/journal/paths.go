package journal

import "strings"

// Paths returns the protected paths that a task allows.
func (s Sandbox) Paths() []string {
	if s.Allow == "" {
		return nil
	}
	return strings.Split(s.Allow, ",")
}
