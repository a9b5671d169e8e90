// Package mirror keeps a directory of this host and a file tree elsewhere the same, for
// sandboxes whose files are not a directory of this host.
//
// The directory here is the truth that the engine fills and takes heads from. Before a
// command [Mirror.Exec] sends what changed here since the last look; after it, it takes
// what changed there. Both sides are a [Tree]. A look is a listing with stamps, so a file
// that did not change does not pass the wire. [Serve] and [Remote] carry a Tree over any
// stream of bytes, as package execd does in a container.
//
// Where processes change files there beside the commands, as a service does, both sides are
// looked at before a command, after it, and by [Mirror.Sync]. What changed on both is as here.
//
// What comes from there is hostile. A listing that no file system can have (a name twice,
// one that leads out, a file below what is no directory) ends the mirror, and so does
// content that no listing told of. Only files, directories and links exist on the wire;
// links are kept as links and nothing is reached through one. A FIFO, device or socket
// becomes an empty FIFO here, which no file call opens and every snapshot names. Of modes
// only the executable bit passes, of owners and times nothing. A tree that is over the
// [Limits] is not taken: the command that made it ends as disk_full.
package mirror
