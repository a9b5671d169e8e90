//go:build !linux

package docker

import "errors"

// exchange is never called: Probe fails on other systems.
func exchange(string, string) error { return errors.ErrUnsupported }
