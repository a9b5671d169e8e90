package execd

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/rathcluster/rath/sandbox"
)

// Program opens this program, for copying to the place of a daemon. It must not need
// libraries, which an image may lack.
func Program() (*os.File, error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	program, err := elf.NewFile(self)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read this program: %w", err), self.Close())
	}
	if slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return nil, errors.Join(fmt.Errorf("%w: this program needs libraries that an image may lack; build it with CGO_ENABLED=0", sandbox.ErrUnsupported), self.Close())
	}
	return self, nil
}

// ownMemory is the memory of a daemon and its supervisors in addition to the program.
const ownMemory = 24 << 20

// Overhead returns the daemon's share of the memory of a sandbox: this program, which stays
// in memory, and its working memory. The limit of a sandbox with a daemon of its own is the
// limit of its commands plus Overhead.
func Overhead() (int64, error) {
	fi, err := os.Stat("/proc/self/exe")
	if err != nil {
		return 0, err
	}
	return fi.Size() + ownMemory, nil
}
