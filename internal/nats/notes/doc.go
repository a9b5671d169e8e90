// Package notes keeps a memory.Store in a stream, one for all nodes of a fleet.
//
// The stream MEMORY is the truth. Each note has a subject of its own, of which the last
// message counts, and so have each archive and each delete; messages/FORMAT.md describes
// their contents. The state of a memory follows from its messages and their sequences
// alone. The index is a projection that each process builds when it uses a memory and
// updates before it answers: a call sees every change that was acknowledged, to any
// process, before the call began. A change is as durable as the stream.
//
//	s, err := notes.Open(streams, "acme", "notes", nil)
//	if err != nil { ... }
//	err = s.Write(ctx, "memory://user/preferences/colours", "Prefers a dark theme.", memory.Origin{})
//
// A change whose acknowledgement was lost is sent again. It then replaces changes that
// others made to the same name meanwhile.
//
// Files, the lowest first: change, vectors, notes, catchup, publish, names.
package notes
