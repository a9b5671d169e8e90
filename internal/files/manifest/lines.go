package manifest

// maxEdits bounds the search for a short difference. A larger difference is one block from
// the first to the last differing line.
const maxEdits = 2000

// Edit is a run of lines that two texts share, or that only one of them has.
// Ranges are indexes of lines from 0; the second of a pair is exclusive.
type Edit struct {
	Op             byte // ' ', '-' or '+'
	OldFrom, OldTo int  // empty for '+': where the lines would be
	NewFrom, NewTo int  // empty for '-'
}

// DiffLines returns a shortest list of edits that turns the lines of a into those of z, by
// Myers' greedy algorithm. The edits cover both texts, in order, and a removal precedes an
// insertion at the same place. If the texts differ in more than a few thousand lines, the
// difference is one block instead. DiffLines is a pure function: equal texts have equal
// edits.
func DiffLines(a, z []string) []Edit {
	// The common beginning and end need no search.
	head := 0
	for head < len(a) && head < len(z) && a[head] == z[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(z)-head && a[len(a)-1-tail] == z[len(z)-1-tail] {
		tail++
	}
	var out []Edit
	add := func(op byte, a0, a1, z0, z1 int) {
		if a0 == a1 && z0 == z1 {
			return
		}
		if n := len(out); n > 0 && out[n-1].Op == op {
			out[n-1].OldTo, out[n-1].NewTo = a1, z1
			return
		}
		out = append(out, Edit{op, a0, a1, z0, z1})
	}
	add(' ', 0, head, 0, head)
	i, j := head, head
	endA, endZ := len(a)-tail, len(z)-tail
	for _, m := range matches(a[head:endA], z[head:endZ]) {
		x, y := head+m.a, head+m.z
		add('-', i, x, j, j)
		add('+', x, x, j, y)
		add(' ', x, x+m.n, y, y+m.n)
		i, j = x+m.n, y+m.n
	}
	add('-', i, endA, j, j)
	add('+', endA, endA, j, endZ)
	add(' ', endA, len(a), endZ, len(z))
	return out
}

// match is a run of n equal lines.
type match struct{ a, z, n int }

// matches returns the unchanged runs of a shortest edit script, or none if the script would
// be longer than maxEdits.
func matches(a, z []string) []match {
	if len(a) == 0 || len(z) == 0 {
		return nil
	}
	// Comparing numbers is cheaper than comparing lines.
	ids := make(map[string]int)
	number := func(lines []string) []int {
		out := make([]int, len(lines))
		for i, l := range lines {
			id, ok := ids[l]
			if !ok {
				id = len(ids)
				ids[l] = id
			}
			out[i] = id
		}
		return out
	}
	na, nz := number(a), number(z)

	// best[k] is the furthest x reached on diagonal k = x - y; trace keeps the
	// touched part of it for each number of edits.
	most := min(maxEdits, len(na)+len(nz))
	best := make([]int, 2*most+3)
	at := func(k int) int { return k + most + 1 }
	var trace [][]int
	for d := 0; d <= most; d++ {
		trace = append(trace, append([]int(nil), best[at(-d)-1:at(d)+2]...))
		for k := -d; k <= d; k += 2 {
			x := best[at(k-1)] + 1
			if k == -d || k != d && best[at(k-1)] < best[at(k+1)] {
				x = best[at(k+1)]
			}
			for x < len(na) && x-k < len(nz) && na[x] == nz[x-k] {
				x++
			}
			best[at(k)] = x
			if x >= len(na) && x-k >= len(nz) {
				return backtrack(trace, len(na), len(nz))
			}
		}
	}
	return nil
}

// backtrack walks the trace from the end and collects the shared runs.
func backtrack(trace [][]int, x, y int) []match {
	var runs []match
	for d := len(trace) - 1; d >= 0; d-- {
		// trace[d] holds diagonals -d-1 to d+1.
		v := func(k int) int { return trace[d][k+d+1] }
		k := x - y
		var px, py int
		if d == 0 {
			px, py = 0, 0
		} else {
			pk := k - 1
			if k == -d || k != d && v(k-1) < v(k+1) {
				pk = k + 1
			}
			px = v(pk)
			py = px - pk
		}
		// One edit from (px, py), then a run to (x, y).
		sx, sy := px, py
		if d > 0 {
			if x-y > px-py {
				sx++
			} else {
				sy++
			}
		}
		if n := x - sx; n > 0 {
			runs = append(runs, match{sx, sy, n})
		}
		x, y = px, py
	}
	for i, j := 0, len(runs)-1; i < j; i, j = i+1, j-1 {
		runs[i], runs[j] = runs[j], runs[i]
	}
	return runs
}
