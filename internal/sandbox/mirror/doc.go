// Package mirror synchronizes a directory of this host with a file tree elsewhere, for
// sandboxes whose files are not a directory of this host.
//
// The directory here is authoritative: the engine fills it and snapshots it. Before a
// command [Mirror.Exec] sends the changes made here since the last scan; after the command
// it fetches the changes made there. Both sides are a [Tree]. A scan is a listing with
// stamps, so unchanged files are not transferred. [Serve] and [Remote] carry a Tree over
// any stream of bytes, as package execd does in a container.
//
// If processes change files there between commands, as a service does, both sides are
// scanned before a command, after it, and by [Mirror.Sync]. If both sides changed a file,
// the version here wins.
//
// Data from there is untrusted. An impossible listing (a duplicate name, a name that leads
// out, a file below a non-directory) ends the mirror, and so does content without an entry
// in the listing. Only files, directories and links exist on the wire; links are kept as
// links and never followed. A FIFO, device or socket becomes an empty FIFO here, which no
// file call opens and every snapshot names. Of a mode only the executable bit is
// transferred; owners and times are not. A tree over the [Limits] is not copied: its
// command ends as disk_full.
package mirror
