package run

import (
	"fmt"
	"slices"

	"github.com/rathcluster/rath/session"
)

// MaxAfter is the maximum number of runs that must have ended before another one begins.
const MaxAfter = 16

// MaxAwaited is the maximum number of runs that wait for the end of one run. Further ones
// are noted once it has ended.
const MaxAwaited = 4096

// ValidAfter checks the runs that must have ended before the run id begins: at most
// MaxAfter, each once, and not itself. The error wraps ErrMalformed, or is that of
// session.ValidID.
func ValidAfter(id ID, after []ID) error {
	if len(after) > MaxAfter {
		return fmt.Errorf("run: %d runs before %s: %w; name at most %d", len(after), id, ErrMalformed, MaxAfter)
	}
	for i, a := range after {
		if err := session.ValidID("run", string(a)); err != nil {
			return err
		}
		if a == id {
			return fmt.Errorf("run: %s names itself: %w; name runs that were submitted before", a, ErrMalformed)
		}
		if slices.Contains(after[:i], a) {
			return fmt.Errorf("run: %s is named twice: %w; name other runs, each once", a, ErrMalformed)
		}
	}
	return nil
}
