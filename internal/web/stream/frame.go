package stream

import (
	"github.com/rathcluster/rath/internal/evidence/events"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/messages"
)

// frame is an encoded event. Its text lacks the id and the end of the event, which differ
// from reader to reader.
type frame struct {
	event events.Event
	text  []byte
}

// encode returns the frames of events.
func encode(all []events.Event) ([]frame, error) {
	out := make([]frame, len(all))
	for i := range all {
		data, err := messages.Encode(&all[i])
		if err != nil {
			return nil, err
		}
		text := make([]byte, 0, len(data)+len(all[i].Kind)+24)
		text = append(append(append(text, "event: "...), all[i].Kind...), "\ndata: "...)
		out[i] = frame{all[i], append(append(text, data...), '\n')}
	}
	return out, nil
}

// item is what a topic sends at once: the events of one record, or drafts.
type item struct {
	record *messages.Record // only its position; nil for drafts
	at     lineage.StoredAt // of the record
	frames []frame
	bytes  int
}

// recordItem returns the item of a record. drafts are events before those of the record,
// which have no id.
func recordItem(r *messages.LineageRecord, all []events.Event) (*item, error) {
	c, err := lineage.ParseCursor(r.Cursor)
	if err != nil {
		return nil, err
	}
	it := &item{record: &messages.Record{Session: r.Record.Session, Partition: r.Record.Partition, Seq: r.Record.Seq, K: r.Record.K}, at: c.At()}
	return it, it.fill(all)
}

// draftItem returns the item of drafts.
func draftItem(all []events.Event) (*item, error) {
	it := &item{}
	return it, it.fill(all)
}

func (it *item) fill(all []events.Event) (err error) {
	it.frames, err = encode(all)
	for i := range it.frames {
		it.bytes += len(it.frames[i].text)
	}
	return err
}
