package wire

import (
	"errors"
	"testing"

	"github.com/rathcluster/rath/session"
)

func TestDecodeLetterEnd(t *testing.T) {
	e, err := DecodeLetterEnd([]byte(`{"schema":1,"at":7,"end":"dropped","by":"ana","says":"ann","time_ms":1}`))
	if err != nil || e.By != "ana" || e.Says != "ann" {
		t.Errorf("%+v, %v", e, err)
	}
	for _, later := range []string{`{"schema":2,"at":7,"end":"dropped","time_ms":1}`, `{"at":7,"end":"dropped","time_ms":1}`} {
		if _, err := DecodeLetterEnd([]byte(later)); !errors.Is(err, session.ErrTooOld) {
			t.Errorf("%s: %v", later, err)
		}
	}
}
