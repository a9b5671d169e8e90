package execd

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/rathcluster/rath/sandbox"
)

// Program opens this program, to be put where a daemon is started from. It must need no
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

// ownMemory is what a daemon and what supervises commands take besides the program.
const ownMemory = 24 << 20

// Overhead is what a daemon takes of the memory of a sandbox: this program, which stays
// there, and what it works with. A limit for a sandbox with a daemon of its own is that of
// the commands and this.
func Overhead() (int64, error) {
	fi, err := os.Stat("/proc/self/exe")
	if err != nil {
		return 0, err
	}
	return fi.Size() + ownMemory, nil
}
