package dossier

import "strings"

// edit is one line of a comparison: kept, removed or added.
type edit struct {
	op  byte // ' ', '-' or '+'
	old int  // index of the line before; where it would be for '+'
	new int
}

// maxEdits bounds the work of comparing two texts: what differs more is told
// as removed and added whole.
const maxEdits = 1500

// compare returns how the lines of a become those of b, by Myers' algorithm:
// the fewest removals and additions. It is deterministic, because every reader
// of a dossier must find the same.
func compare(a, b []string) []edit {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	out := make([]edit, 0, len(a)+len(b)-head-tail)
	for i := range head {
		out = append(out, edit{' ', i, i})
	}
	out = append(out, middle(a[head:len(a)-tail], b[head:len(b)-tail], head)...)
	for i := range tail {
		out = append(out, edit{' ', len(a) - tail + i, len(b) - tail + i})
	}
	return out
}

// middle compares what is left between the common ends; base is where it
// begins in both.
func middle(a, b []string, base int) []edit {
	n, m := len(a), len(b)
	if n == 0 || m == 0 {
		return whole(n, m, base)
	}
	limit := min(n+m, maxEdits)
	// v[k+limit+1] is how far diagonal k got; trace keeps what round d reads of
	// it, the diagonals from -d-1 to d+1.
	v := make([]int, 2*limit+3)
	var trace [][]int
	for d := 0; d <= limit; d++ {
		trace = append(trace, append([]int(nil), v[limit-d:limit+d+3]...))
		for k := -d; k <= d; k += 2 {
			x := 0
			if d > 0 {
				if k == -d || k != d && v[limit+k] < v[limit+k+2] {
					x = v[limit+k+2]
				} else {
					x = v[limit+k] + 1
				}
			}
			y := x - k
			for x < n && y < m && a[x] == b[y] {
				x++
				y++
			}
			v[limit+k+1] = x
			if x >= n && y >= m {
				return back(trace, n, m, base)
			}
		}
	}
	return whole(n, m, base)
}

func whole(n, m, base int) []edit {
	out := make([]edit, 0, n+m)
	for i := range n {
		out = append(out, edit{'-', base + i, base})
	}
	for i := range m {
		out = append(out, edit{'+', base + n, base + i})
	}
	return out
}

// back walks the trace from the end to the beginning.
func back(trace [][]int, x, y, base int) []edit {
	var rev []edit
	for d := len(trace) - 1; d >= 0; d-- {
		at := func(k int) int { return trace[d][k+d+1] }
		px, py := 0, 0
		if d > 0 {
			k := x - y
			prev := k - 1
			if k == -d || k != d && at(k-1) < at(k+1) {
				prev = k + 1
			}
			px = at(prev)
			py = px - prev
		}
		for x > px && y > py {
			x--
			y--
			rev = append(rev, edit{' ', base + x, base + y})
		}
		switch {
		case d == 0:
		case x == px:
			y--
			rev = append(rev, edit{'+', base + x, base + y})
		default:
			x--
			rev = append(rev, edit{'-', base + x, base + y})
		}
	}
	out := make([]edit, len(rev))
	for i, e := range rev {
		out[len(rev)-1-i] = e
	}
	return out
}

// split cuts a text into lines that keep their ends, so that a missing newline
// at the end of a file is a difference.
func split(s string) []string {
	if s == "" {
		return nil
	}
	lines := strings.SplitAfter(s, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}
