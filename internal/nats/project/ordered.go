package project

import "github.com/rathcluster/rath/internal/lineage"

// Ordered drops what a stream of lineage records repeats: of each event stream
// it passes only what is above the last. The zero value is ready to use. It is
// not safe for concurrent use.
type Ordered struct {
	last map[[2]uint32]recordPlace
}

type recordPlace struct {
	seq uint64
	k   int
}

// Pass reports whether a record is new.
func (o *Ordered) Pass(r *lineage.Record) bool {
	g, _, _ := r.Session.Locate()
	stream := [2]uint32{g, r.Partition}
	last, known := o.last[stream]
	if known && (r.Seq < last.seq || r.Seq == last.seq && r.K <= last.k) {
		return false
	}
	if o.last == nil {
		o.last = map[[2]uint32]recordPlace{}
	}
	o.last[stream] = recordPlace{r.Seq, r.K}
	return true
}
