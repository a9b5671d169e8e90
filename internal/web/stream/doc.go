// Package stream sends the events of runs, sessions, trees and tenants to programs and
// pages, as server-sent events.
//
// All readers of a tree share one subscription and one fold, a topic, which encodes each
// event once. The id of an event is the position of its reader, see [events.Position]: a
// reader that sends it back as Last-Event-ID gets the events after it, each once, from the
// memory of the topic or else from lineage. Drafts of model output have no id. A reader
// that connects gets the whole drafts so far.
//
// A reader that lags behind the memory of the topic, or does not take a write within its
// deadline, is cut. It connects again and lacks nothing.
//
// Files, the lowest first: frame, selection, topic, reader, stream.
package stream
