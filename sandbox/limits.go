package sandbox

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Limits are the resource limits of a sandbox. Zero means the backend's default, which need
// not be enforced. Any other value is enforced or rejected.
type Limits struct {
	CPU    float64 // cores
	Memory int64   // bytes
	Disk   int64   // bytes of the workspace and the temporary files together
	PIDs   int     // processes and threads at one time
}

// The names of limits in [Capabilities].
const (
	LimitCPU    = "CPU"
	LimitMemory = "Memory"
	LimitDisk   = "Disk"
	LimitPIDs   = "PIDs"
)

// The smallest limits under which a command can run.
const (
	minCPU    = 0.01
	minMemory = 16 << 20 // including its supervisor
	minDisk   = 1 << 20
	minPIDs   = 4
)

// ParseLimits parses limits such as "memory=512m,cpus=1.5,disk=2g,pids=200", each at most
// once and in any order. Sizes are bytes, or have one of the suffixes k, m, g, which are
// powers of 1024. An empty text is no limits.
func ParseLimits(text string) (Limits, error) {
	var l Limits
	bad := func(field, want string) (Limits, error) {
		return Limits{}, fmt.Errorf("limit %q: want %s; write limits as memory=512m,cpus=1.5,disk=2g,pids=200", field, want)
	}
	if strings.TrimSpace(text) == "" {
		return l, nil
	}
	for field := range strings.SplitSeq(text, ",") {
		field = strings.TrimSpace(field)
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "memory":
			n, ok := size(value)
			if l.Memory != 0 || !ok || n < minMemory {
				return bad(field, "one size of at least 16m")
			}
			l.Memory = n
		case "disk":
			n, ok := size(value)
			if l.Disk != 0 || !ok || n < minDisk {
				return bad(field, "one size of at least 1m")
			}
			l.Disk = n
		case "cpus":
			n, err := strconv.ParseFloat(value, 64)
			if l.CPU != 0 || err != nil || !(n >= minCPU && n <= 1024) {
				return bad(field, "one number from 0.01 to 1024")
			}
			l.CPU = n
		case "pids":
			n, err := strconv.Atoi(value)
			if l.PIDs != 0 || err != nil || n < minPIDs || n > 1<<22 {
				return bad(field, "one number from 4 to 4194304")
			}
			l.PIDs = n
		default:
			return bad(field, "memory, cpus, disk or pids")
		}
	}
	return l, nil
}

// size parses a number of bytes.
func size(s string) (int64, bool) {
	shift := 0
	if i := strings.IndexAny(s, "kmgKMG"); i >= 0 && i == len(s)-1 {
		shift = 10 * (1 + strings.Index("kmg", strings.ToLower(s[i:])))
		s = s[:i]
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return 0, false
	}
	return n << shift, true
}

// Asked returns the names of the limits that are set.
func (l Limits) Asked() []string {
	var names []string
	for _, f := range []struct {
		name string
		set  bool
	}{{LimitCPU, l.CPU != 0}, {LimitMemory, l.Memory != 0}, {LimitDisk, l.Disk != 0}, {LimitPIDs, l.PIDs != 0}} {
		if f.set {
			names = append(names, f.name)
		}
	}
	return names
}

// Unenforced returns the names of the limits that are set and not enforced.
func (c Capabilities) Unenforced(l Limits) []string {
	return slices.DeleteFunc(l.Asked(), func(name string) bool { return slices.Contains(c.Limits, name) })
}

// String returns the limits in the form that [ParseLimits] parses.
func (l Limits) String() string {
	var fields []string
	if l.CPU != 0 {
		fields = append(fields, "cpus="+strconv.FormatFloat(l.CPU, 'g', -1, 64))
	}
	for _, f := range []struct {
		name string
		n    int64
	}{{"disk", l.Disk}, {"memory", l.Memory}, {"pids", int64(l.PIDs)}} {
		if f.n == 0 {
			continue
		}
		unit := ""
		for _, u := range []string{"k", "m", "g"} {
			if f.name == "pids" || f.n%1024 != 0 {
				break
			}
			f.n, unit = f.n/1024, u
		}
		fields = append(fields, f.name+"="+strconv.FormatInt(f.n, 10)+unit)
	}
	return strings.Join(fields, ",")
}

// Within returns the limits of l, completed by the limits of most. It fails if a limit of l
// is higher than the limit of most.
func (l Limits) Within(most Limits) (Limits, error) {
	over := func(name string) error {
		return fmt.Errorf("limit %s of %q is more than the node allows (%s); ask for less", strings.ToLower(name), l, most)
	}
	switch {
	case most.CPU != 0 && l.CPU > most.CPU:
		return l, over("cpus")
	case most.Memory != 0 && l.Memory > most.Memory:
		return l, over(LimitMemory)
	case most.Disk != 0 && l.Disk > most.Disk:
		return l, over(LimitDisk)
	case most.PIDs != 0 && l.PIDs > most.PIDs:
		return l, over(LimitPIDs)
	}
	l.CPU, l.Memory = cmp.Or(l.CPU, most.CPU), cmp.Or(l.Memory, most.Memory)
	l.Disk, l.PIDs = cmp.Or(l.Disk, most.Disk), cmp.Or(l.PIDs, most.PIDs)
	return l, nil
}

// AtMost returns the limits of l, each capped by the limit of most.
func (l Limits) AtMost(most Limits) Limits {
	return Limits{lower(l.CPU, most.CPU), lower(l.Memory, most.Memory), lower(l.Disk, most.Disk), lower(l.PIDs, most.PIDs)}
}

// lower returns the lower of two limits. Zero is no limit.
func lower[T int | int64 | float64](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
