//go:build !unix && !windows

package filelock

import (
	"errors"
	"os"
)

// Try fails: there are no locks here.
func Try(*os.File) (taken bool, err error) { return false, errors.ErrUnsupported }

// Wait fails, as Try does.
func Wait(*os.File) error { return errors.ErrUnsupported }

// Release closes f.
func Release(f *os.File) error { return f.Close() }
