//go:build !linux

package docker

import "errors"

// exchange is not reached: Probe refuses other systems.
func exchange(string, string) error { return errors.ErrUnsupported }
