package run_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rathcluster/rath/run"
)

func TestTags(t *testing.T) {
	seventeen := run.Tags{}
	for i := range 17 {
		seventeen = seventeen.With(strings.Repeat("k", i+1), "v")
	}
	for _, c := range []struct {
		tags run.Tags
		want string // in the error
	}{
		{nil, ""},
		{run.Tags{"customer": "acme", "order_1-x": "a.b:c/d@e+f-g_h"}, ""},
		{run.Tags{strings.Repeat("k", 32): strings.Repeat("v", 64)}, ""},
		{run.Tags{"": "v"}, "no key"},
		{run.Tags{strings.Repeat("k", 33): "v"}, "1 to 32"},
		{run.Tags{"a.b": "v"}, `"a.b"`},
		{run.Tags{"k": ""}, "tag k"},
		{run.Tags{"k": strings.Repeat("v", 10<<10)}, "of 10240 bytes"},
		{run.Tags{"k": "two words"}, "no value"},
		{run.Tags{"k": "é"}, "no value"},
		{run.Tags{"k": "a*"}, "no value"},
		{run.Tags{"k": "a\x00"}, "no value"},
		{seventeen, "at most 16"},
	} {
		err := c.tags.Valid()
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, run.ErrMalformed) || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 300) {
			t.Errorf("%.80v: %v, want %q", c.tags, err, c.want)
		}
	}
	tags := run.Tags{"a": "1"}
	if more := tags.With("b", "2").With("a", ""); more.String() != "b=2" || tags.String() != "a=1" || run.Tags(nil).With("x", "y").With("w", "v").String() != "w=v x=y" {
		t.Errorf("%v, %v", more, tags)
	}
}
