package streams

import (
	"strings"
	"testing"
)

// TestRoomOfInodes: a disk with room in bytes takes no more than its inodes allow, and reports it.
func TestRoomOfInodes(t *testing.T) {
	for free, want := range map[int64]Room{0: RoomNone, 499: RoomNone, 500: RoomEnds, 1000: RoomOpen, 2000: RoomAll} {
		d := Disk{Free: 1 << 40, Total: 1 << 40, Kept: 1 << 28, FreeFiles: free, KeptFiles: 1000}
		if got := d.Room(); got != want {
			t.Errorf("with %d inodes free a disk has room for %v, want %v", free, got, want)
		}
		if named := strings.Contains(d.String(), "inodes"); named != (want != RoomAll) {
			t.Errorf("with %d inodes free a disk is described as %s", free, d)
		}
		if n := d.fillOfDisk().Inodes; (n != nil) != (want != RoomAll) || n != nil && *n != free {
			t.Errorf("with %d inodes free nodes publish %v", free, n)
		}
	}
	if r := (Disk{Free: 1 << 40, Kept: 1 << 28}).Room(); r != RoomAll {
		t.Errorf("a disk that counts no inodes has room for %v", r)
	}
}
