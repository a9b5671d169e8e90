package lineage

import (
	"cmp"
	"maps"
	"slices"
)

// The layout is Sugiyama's: nodes are assigned to layers by their longest path from a
// root, edges over several layers get a joint in each, a few sweeps of the barycentre
// heuristic remove crossings, and then every node moves as near to its neighbours as the
// adjacent nodes allow. Layers run from left to right, so that a fan-out grows downwards,
// where pages scroll.

// box is a node, or the joint of a long edge, with its position.
type box struct {
	node   int // index of the node, -1 for a joint
	layer  int
	x, y   float64 // top left corner
	w, h   float64
	before []int // boxes in the previous layer that lead here
	after  []int
}

func (b *box) middle() float64 { return b.y + b.h/2 }

// route is an edge with the boxes on its path, including the nodes at its ends.
type route struct {
	edge  int
	boxes []int
}

type layout struct {
	boxes  []box
	layers [][]int
	routes []route
	width  float64
	height float64
}

type spacing struct {
	layer, node, joint, margin float64
}

// arrange places nodes of the given sizes; edges are pairs of node indexes. Edges on a
// cycle are omitted.
func arrange(sizes [][2]float64, edges [][2]int, s spacing) *layout {
	l := &layout{}
	layerOf := longestPaths(len(sizes), edges)
	deepest := 0
	for i, size := range sizes {
		l.boxes = append(l.boxes, box{node: i, layer: layerOf[i], w: size[0], h: size[1]})
		deepest = max(deepest, layerOf[i])
	}
	l.layers = make([][]int, deepest+1)
	for i := range l.boxes {
		l.layers[layerOf[i]] = append(l.layers[layerOf[i]], i)
	}
	for n, e := range edges {
		from, to := e[0], e[1]
		if layerOf[from] >= layerOf[to] {
			continue
		}
		r := route{edge: n, boxes: []int{from}}
		for at := layerOf[from] + 1; at < layerOf[to]; at++ {
			l.boxes = append(l.boxes, box{node: -1, layer: at, h: s.joint})
			joint := len(l.boxes) - 1
			l.layers[at] = append(l.layers[at], joint)
			r.boxes = append(r.boxes, joint)
		}
		r.boxes = append(r.boxes, to)
		for i := 1; i < len(r.boxes); i++ {
			a, b := r.boxes[i-1], r.boxes[i]
			l.boxes[a].after = append(l.boxes[a].after, b)
			l.boxes[b].before = append(l.boxes[b].before, a)
		}
		l.routes = append(l.routes, r)
	}
	l.untangle()
	l.place(s)
	return l
}

// longestPaths returns the layer of each node. Nodes on a cycle stay in the first layer.
func longestPaths(n int, edges [][2]int) []int {
	layer, waits, next := make([]int, n), make([]int, n), make([][]int, n)
	for _, e := range edges {
		next[e[0]] = append(next[e[0]], e[1])
		waits[e[1]]++
	}
	var ready []int
	for i := range n {
		if waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	for len(ready) > 0 {
		i := ready[0]
		ready = ready[1:]
		for _, to := range next[i] {
			layer[to] = max(layer[to], layer[i]+1)
			if waits[to]--; waits[to] == 0 {
				ready = append(ready, to)
			}
		}
	}
	for i := range n {
		if waits[i] > 0 {
			layer[i] = 0
		}
	}
	return layer
}

// untangle orders the boxes of each layer and keeps the best order found.
func (l *layout) untangle() {
	const sweeps = 8
	best, least := l.order(), l.crossings()
	for i := range sweeps {
		if least == 0 {
			break
		}
		if i%2 == 0 {
			for at := 1; at < len(l.layers); at++ {
				l.sort(at, func(b *box) []int { return b.before })
			}
		} else {
			for at := len(l.layers) - 2; at >= 0; at-- {
				l.sort(at, func(b *box) []int { return b.after })
			}
		}
		if n := l.crossings(); n < least {
			best, least = l.order(), n
		}
	}
	l.layers = best
}

func (l *layout) order() [][]int {
	out := make([][]int, len(l.layers))
	for i := range l.layers {
		out[i] = slices.Clone(l.layers[i])
	}
	return out
}

func (l *layout) ranks(layer int) map[int]int {
	rank := map[int]int{}
	if layer >= 0 && layer < len(l.layers) {
		for i, b := range l.layers[layer] {
			rank[b] = i
		}
	}
	return rank
}

// sort orders a layer by the mean rank of the boxes that its boxes are joined to;
// unconnected boxes keep their position.
func (l *layout) sort(at int, joined func(*box) []int) {
	rank := l.ranks(at - 1)
	maps.Copy(rank, l.ranks(at+1))
	centre := map[int]float64{}
	for i, b := range l.layers[at] {
		to := joined(&l.boxes[b])
		sum := 0.0
		for _, o := range to {
			sum += float64(rank[o])
		}
		if centre[b] = float64(i); len(to) > 0 {
			centre[b] = sum / float64(len(to))
		}
	}
	slices.SortStableFunc(l.layers[at], func(a, b int) int { return cmp.Compare(centre[a], centre[b]) })
}

func (l *layout) crossings() int {
	n := 0
	for at := 1; at < len(l.layers); at++ {
		rank := l.ranks(at - 1)
		var ends []int // ranks of the left ends, in the order of the right ones
		for _, b := range l.layers[at] {
			var own []int
			for _, o := range l.boxes[b].before {
				own = append(own, rank[o])
			}
			slices.Sort(own)
			for _, e := range own {
				for _, o := range ends {
					if o > e {
						n++
					}
				}
			}
			ends = append(ends, own...)
		}
	}
	return n
}

// place sets the coordinates of every box.
func (l *layout) place(s spacing) {
	x := s.margin
	for _, layer := range l.layers {
		w, y := 0.0, s.margin
		for _, b := range layer {
			l.boxes[b].x, l.boxes[b].y = x, y
			y += l.boxes[b].h + s.node
			w = max(w, l.boxes[b].w)
		}
		for _, b := range layer {
			if l.boxes[b].node < 0 {
				l.boxes[b].w = w
			}
		}
		x += w + s.layer
	}
	const passes = 6
	for i := range passes {
		if i%2 == 0 {
			for at := 1; at < len(l.layers); at++ {
				l.align(at, s, func(b *box) []int { return b.before })
			}
		} else {
			for at := len(l.layers) - 2; at >= 0; at-- {
				l.align(at, s, func(b *box) []int { return b.after })
			}
		}
	}
	top := l.boxes[0].y
	for _, b := range l.boxes {
		top = min(top, b.y)
	}
	for i := range l.boxes {
		b := &l.boxes[i]
		b.y += s.margin - top
		l.width, l.height = max(l.width, b.x+b.w+s.margin), max(l.height, b.y+b.h+s.margin)
	}
}

// align moves the boxes of a layer towards the middle of the boxes that they are joined
// to, in order and without overlap: the least squares solution, by pooling adjacent
// violators.
func (l *layout) align(at int, s spacing, joined func(*box) []int) {
	layer := l.layers[at]
	type pool struct {
		sum    float64 // of the desired offsets
		weight float64
		n      int
	}
	var pools []pool
	offset := make([]float64, len(layer)) // of each box, with minimal gaps
	for i, id := range layer {
		b := &l.boxes[id]
		if i > 0 {
			up := &l.boxes[layer[i-1]]
			offset[i] = offset[i-1] + up.h + s.node
		}
		wish := b.y
		if to := joined(b); len(to) > 0 {
			sum := 0.0
			for _, o := range to {
				sum += l.boxes[o].middle()
			}
			wish = sum/float64(len(to)) - b.h/2
		}
		weight := 1.0
		if b.node < 0 {
			weight = 2 // keep long edges straight
		}
		pools = append(pools, pool{(wish - offset[i]) * weight, weight, 1})
		for len(pools) > 1 {
			a, z := pools[len(pools)-2], pools[len(pools)-1]
			if a.sum/a.weight <= z.sum/z.weight {
				break
			}
			pools = append(pools[:len(pools)-2], pool{a.sum + z.sum, a.weight + z.weight, a.n + z.n})
		}
	}
	i := 0
	for _, p := range pools {
		for range p.n {
			l.boxes[layer[i]].y = p.sum/p.weight + offset[i]
			i++
		}
	}
}
