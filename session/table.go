package session

// table is a persistent vector of chunks: appending returns a new table that
// shares all full pages with the old one. A table is a tree of nodes with
// fanout children and a tail page that is not in the tree yet, after Bagwell's
// ideal hash tries as Clojure uses them for vectors. Copying a table copies a
// few words at any length.
type table struct {
	n     int
	shift uint // bits of the index that the root consumes above the page
	root  *node
	tail  []Chunk // 0..pageSize chunks, never shared with room to grow
}

const (
	pageBits = 5
	pageSize = 1 << pageBits
	pageMask = pageSize - 1
)

type node struct {
	kids [pageSize]*node
	page []Chunk // of a leaf: exactly pageSize chunks
}

func (t table) tailStart() int { return t.n - len(t.tail) }

func (t table) at(i int) Chunk {
	if start := t.tailStart(); i >= start {
		return t.tail[i-start]
	}
	nd := t.root
	for level := t.shift; level > 0; level -= pageBits {
		nd = nd.kids[(i>>level)&pageMask]
	}
	return nd.page[i&pageMask]
}

// append returns the table with c at its end. It copies at most one page and
// one path of the tree.
func (t table) append(c Chunk) table {
	if len(t.tail) == pageSize {
		t = t.push()
	}
	tail := make([]Chunk, len(t.tail)+1)
	copy(tail, t.tail)
	tail[len(t.tail)] = c
	t.tail = tail
	t.n++
	return t
}

// extend returns the table with all of chunks at its end.
func (t table) extend(chunks []Chunk) table {
	for len(chunks) > 0 {
		if len(t.tail) == pageSize {
			t = t.push()
		}
		k := min(pageSize-len(t.tail), len(chunks))
		tail := make([]Chunk, len(t.tail)+k)
		copy(tail, t.tail)
		copy(tail[len(t.tail):], chunks[:k])
		t.tail, t.n, chunks = tail, t.n+k, chunks[k:]
	}
	return t
}

// push moves a full tail into the tree.
func (t table) push() table {
	leaf := &node{page: t.tail}
	start := t.tailStart()
	switch {
	case t.root == nil:
		t.root, t.shift = leaf, 0
	case start == 1<<(t.shift+pageBits): // the tree is full: one level more
		root := &node{}
		root.kids[0] = t.root
		t.shift += pageBits
		root.kids[1] = spine(leaf, t.shift-pageBits)
		t.root = root
	default:
		t.root = t.root.with(start, t.shift, leaf)
	}
	t.tail = nil
	return t
}

func spine(leaf *node, level uint) *node {
	for ; level > 0; level -= pageBits {
		n := &node{}
		n.kids[0] = leaf
		leaf = n
	}
	return leaf
}

func (nd *node) with(i int, level uint, leaf *node) *node {
	cp := *nd
	slot := (i >> level) & pageMask
	if level == pageBits {
		cp.kids[slot] = leaf
		return &cp
	}
	if kid := cp.kids[slot]; kid != nil {
		cp.kids[slot] = kid.with(i, level-pageBits, leaf)
	} else {
		cp.kids[slot] = spine(leaf, level-pageBits)
	}
	return &cp
}

// prefix returns the first n chunks as a table. It shares all but one page and one
// path.
func (t table) prefix(n int) table {
	switch {
	case n >= t.n:
		return t
	case n <= 0:
		return table{}
	case n > t.tailStart():
		t.tail = t.tail[: n-t.tailStart() : n-t.tailStart()]
		t.n = n
		return t
	}
	start := (n - 1) &^ pageMask // the page that becomes the tail
	page := t.page(start)
	tail := page[: n-start : n-start]
	if start == 0 {
		return table{n: n, tail: tail}
	}
	// Chunks beyond start remain reachable in the shared tree but are never read;
	// append overwrites their slots in a copied path.
	root, shift := t.root, t.shift
	for shift > 0 && start <= 1<<shift {
		root, shift = root.kids[0], shift-pageBits
	}
	return table{n: n, shift: shift, root: root, tail: tail}
}

func (t table) page(start int) []Chunk {
	if start >= t.tailStart() {
		return t.tail
	}
	nd := t.root
	for level := t.shift; level > 0; level -= pageBits {
		nd = nd.kids[(start>>level)&pageMask]
	}
	return nd.page
}

// each calls yield for the chunks of [from, to) until it returns false.
func (t table) each(from, to int, yield func(int, Chunk) bool) {
	for i := max(from, 0); i < min(to, t.n); {
		start := i &^ pageMask
		if ts := t.tailStart(); i >= ts {
			start = ts
		}
		page := t.page(start)
		for ; i < min(to, t.n) && i-start < len(page); i++ {
			if !yield(i, page[i-start]) {
				return
			}
		}
	}
}

// shares reports whether the first n chunks of both tables are the same. It compares
// only the last of them: a table grows only at its end, and a committed chunk is made
// once.
func (t table) shares(o table, n int) bool {
	if n > t.n || n > o.n {
		return false
	}
	if n == 0 {
		return true
	}
	a, b := t.at(n-1).c, o.at(n-1).c
	return a == b || a.ref == b.ref && a.ref != Ref{}
}
