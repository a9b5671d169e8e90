package streams

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Disk is the room on the disk of the streams, if a process can see it: the disk of its own
// server, or of a server of the same machine. The zero Disk has room for everything.
type Disk struct {
	Free, Total int64 // bytes
	// Kept is the reserve. Below twice as much no new run begins, below it runs only end,
	// and below half of it no write succeeds.
	Kept int64
	// FreeFiles and KeptFiles are the same in inodes. Without a reserve they are not counted.
	FreeFiles, KeptFiles int64
	// Failed is the reason no write succeeds although there may be room; "" while writes
	// succeed.
	Failed string
}

// Room returns the appends that such a disk accepts.
func (d Disk) Room() Room {
	switch {
	case d.Failed != "", d.Free < d.Kept/2, d.FreeFiles < d.KeptFiles/2:
		return RoomNone
	case d.Free < d.Kept, d.FreeFiles < d.KeptFiles:
		return RoomEnds
	case d.Free < 2*d.Kept, d.fewFiles():
		return RoomOpen
	}
	return RoomAll
}

// fewFiles reports whether inodes run short.
func (d Disk) fewFiles() bool { return d.FreeFiles < 2*d.KeptFiles }

// String is like "40.0 MiB free and keeps 64.0 MiB", and includes the inodes if they run
// short.
func (d Disk) String() string {
	text := fmt.Sprintf("%s free and keeps %s", bytesText(d.Free), bytesText(d.Kept))
	if d.fewFiles() {
		text += fmt.Sprintf(", and %d inodes (one a file or directory) free and keeps %d", d.FreeFiles, d.KeptFiles)
	}
	if d.Failed != "" {
		text += "; its server has failed: " + d.Failed
	}
	return text
}

// RemedyDisk is the operator's remedy for a full disk, for the end of an error.
const RemedyDisk = "free some space there"

// DiskRoom returns the state of the disk and the appends that it accepts.
func (r *capacity) DiskRoom() (Disk, Room) {
	if r.o.Disk == nil {
		return Disk{}, RoomAll
	}
	d := r.o.Disk()
	return d, d.Room()
}

// admitsDisk is Admit for the disk of the streams.
func (r *capacity) admitsDisk() error {
	if d, room := r.DiskRoom(); room != RoomAll {
		return fmt.Errorf("%w: %w: the disk of the store has %s; try again later, or %s", run.ErrBusy, ErrNoRoom, d, RemedyDisk)
	}
	return nil
}

// fillOfDisk returns the disk's usage in the form of a stream's.
func (d Disk) fillOfDisk() messages.StreamFill {
	fill := messages.StreamFill{
		Stream: messages.FullDisk, Bytes: uint64(max(d.Total-d.Free, 0)), MaxBytes: uint64(max(d.Total, 0)), Room: d.Room().String(), Reason: d.Failed,
	}
	if d.fewFiles() {
		fill.Inodes = &d.FreeFiles
	}
	return fill
}

// lookAtDisk logs when the appends that the disk accepts change.
func (r *capacity) lookAtDisk() {
	d, room := r.DiskRoom()
	if room == r.saidDisk {
		return
	}
	r.saidDisk = room
	switch l := r.conn.Logger.With("disk", d.String()); room {
	case RoomAll:
		l.Info("the disk of the store has room again")
	case RoomOpen:
		l.Warn("the disk of the store is nearly full: no new runs start", "remedy", RemedyDisk)
	case RoomEnds:
		l.Error("the disk of the store is full except its reserve: runs can only end, and resume when there is room", "remedy", RemedyDisk)
	case RoomNone:
		l.Error("the disk of the store is full: writes are rejected until there is room", "remedy", RemedyDisk)
	}
}

// subjectProbe is the subject of the probe write: the last one stays in the cache of
// snapshots, under a name that no session has.
const subjectProbe = PrefixSnap + "probe"

// probeFresh is how long a successful write answers for the next ones.
const probeFresh = 2 * time.Second

// Stores returns nil if a message can be stored now, and an error with the obstacle
// otherwise. ctx bounds the wait; it makes one attempt.
func (r *capacity) Stores(ctx context.Context) error {
	if d, room := r.DiskRoom(); room != RoomAll {
		return fmt.Errorf("%w: the disk of the store has %s; %s", conn.ErrFull, d, RemedyDisk)
	}
	if last := r.probed.Load(); last != nil && time.Since(*last) < probeFresh {
		return nil
	}
	if _, err := r.messages.Publish(ctx, &nats.Msg{Subject: subjectProbe}); err != nil {
		return fmt.Errorf("nats/streams: writes fail: %w", err)
	}
	r.probed.Store(new(time.Now()))
	return nil
}
