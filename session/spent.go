package session

// share is the consumption of one session itself, without that of its sources. A
// value's usage is the sum of the shares of all its source sessions. Each model call is
// thus counted once however often branches of one tree are joined.
type share struct {
	key     Key
	version Version
	own     Usage
}

// shares yields the share of v and of each of its source sessions. It follows the
// ancestors up to the first one in covered, which may be nil.
func (v *value) shares(covered map[Key]Version, yield func(share)) {
	c := v
	if v.committed != nil {
		c = v.committed
	}
	yield(share{c.key, c.version, c.own})
	c.joined.each(yield)
	for l := c.line; l != nil; l = l.up {
		if at, ok := covered[l.from.Key]; ok && at >= l.from.Version {
			return // a cover of the ancestor covers its ancestors too
		}
		yield(share{l.from.Key, l.from.Version, l.own})
		l.joined.each(yield)
	}
}

func (j *joint) each(yield func(share)) {
	for ; j != nil; j = j.prev {
		for _, s := range j.shares {
			yield(s)
		}
	}
}

// lineage returns v and its ancestors with their versions.
func (v *value) lineage() map[Key]Version {
	m := map[Key]Version{v.key: v.version}
	for l := v.line; l != nil; l = l.up {
		m[l.from.Key] = l.from.Version
	}
	return m
}

// cover is a set of shares.
type cover map[Key]share

// add adds s to the set and returns the resulting increase of the sum.
func (c cover) add(s share) Usage {
	old, ok := c[s.key]
	if ok && s.version <= old.version {
		return Usage{}
	}
	c[s.key] = s
	return s.own.Sub(old.own)
}

// addAll adds all shares of v to the set.
func (c cover) addAll(v *value) (more Usage) {
	v.shares(nil, func(s share) { more = more.Add(c.add(s)) })
	return more
}

// past returns the shares that a join of p adds to those of v, without those of v's own
// ancestors.
func (v *value) past(p *value) []share {
	var own []share
	p.shares(v.lineage(), func(s share) {
		if s.key != v.key && s.own != (Usage{}) {
			own = append(own, s)
		}
	})
	return own
}
