package run

import (
	"strconv"
	"strings"
)

// Path names a step within its run, the same on every execution: "3" is the
// third step, "3.0" the first tool call of its round, "2.fast.1" the first
// step of the branch "fast" that step 2 opened.
type Path string

// Child returns the path below p.
func (p Path) Child(name string) Path {
	if p == "" {
		return Path(name)
	}
	return p + "." + Path(name)
}

// Index returns the n-th path below p.
func (p Path) Index(n int) Path { return p.Child(strconv.Itoa(n)) }

// Parent returns the path above p, "" for one of a single element.
func (p Path) Parent() Path { return p[:max(strings.LastIndexByte(string(p), '.'), 0)] }

// Within reports whether p is o or below it.
func (p Path) Within(o Path) bool { return p == o || strings.HasPrefix(string(p), string(o)+".") }

// Top reports whether p is a step of the workflow itself, such as "4": not a part of one,
// and not in a branch.
func (p Path) Top() bool { return isNumber(string(p)) }

// Resumable reports whether a run can be resumed at a step by its path: a step of the
// workflow itself, or an iteration of a loop that such a step opens, such as "4.17".
func (p Path) Resumable() bool { return p.Top() || p.Parent().Top() && p[len(p.Parent())+1:].Top() }

// Ends reports whether a step at p belongs to the end of its run: the workflow has
// returned.
func (p Path) Ends() bool { return strings.HasPrefix(string(p), "end") }

// ComparePaths orders paths in the order of a workflow: numbers by value, names by
// letter, parents before children.
func ComparePaths(a, b Path) int {
	as, bs := strings.Split(string(a), "."), strings.Split(string(b), ".")
	for i := range min(len(as), len(bs)) {
		x, y := as[i], bs[i]
		if len(x) != len(y) && isNumber(x) && isNumber(y) {
			return len(x) - len(y)
		}
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
	}
	return len(as) - len(bs)
}

func isNumber(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
