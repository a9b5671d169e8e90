//go:build !unix

package scripted

import (
	"errors"
	"os"
)

func makeFIFO(*os.Root, string) error { return errors.ErrUnsupported }
