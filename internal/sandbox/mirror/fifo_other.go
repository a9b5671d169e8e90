//go:build !unix

package mirror

import (
	"errors"
	"os"
)

func makeFIFO(*os.Root, string) error { return errors.ErrUnsupported }
