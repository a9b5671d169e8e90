package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// SetTag is flow.SetTag.
func (p *place) SetTag(ctx context.Context, key, value string) error {
	probe := value
	if value == "" { // the tag is removed
		probe = "-"
	}
	if err := run.ValidTag(key, probe); err != nil {
		return err
	}
	st, err := p.begin(ctx, journal.StepTag, key, session.Session{}, false, "", value)
	if err != nil {
		return err
	}
	defer st.end()
	owner := st.ex.levels.owner(st.asked.Path).run
	tags := st.ex.tagsOf(owner).With(key, value)
	err = st.make(nil, func() (d journal.StepCompleted, err error) {
		if len(tags) > run.MaxTags {
			return d, came(fmt.Errorf("flow: tag %s would be number %d of the run: %w; remove one first", key, len(tags), run.ErrMalformed))
		}
		text, err := json.Marshal(value)
		d.Value, d.Summary = string(text), "tags the run "+key+"="+value
		if value == "" {
			d.Summary = "removes the tag " + key
		}
		return d, err
	})
	if err == nil {
		st.ex.mu.Lock()
		st.ex.tags[owner] = tags
		st.ex.mu.Unlock()
	}
	return err
}

// tagsOf returns the tags of a run that this execution executes, at this place of its code.
func (ex *Execution) tagsOf(id run.ID) run.Tags {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.tags == nil {
		root := ex.around.outermost()
		ex.tags = map[run.ID]run.Tags{root.ID: root.Tags}
	}
	return ex.tags[id]
}
