package mirror

import "encoding/binary"

// stamp is the metadata of a regular file. ok is false if the file system does not provide
// enough.
type stamp struct {
	ok                 bool
	size, mtime, ctime int64 // nanoseconds
	inode              uint64
	mode               uint32
}

// String packs the stamp for an Entry.
func (s stamp) String() string {
	if !s.ok {
		return ""
	}
	p := make([]byte, 0, maxStamp)
	for _, n := range []int64{s.size, s.mtime, s.ctime} {
		p = binary.AppendVarint(p, n)
	}
	p = binary.AppendUvarint(p, s.inode)
	return string(binary.AppendUvarint(p, uint64(s.mode)))
}
