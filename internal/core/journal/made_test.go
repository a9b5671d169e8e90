package journal

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

// fill sets all that v holds: texts to text, numbers to ones, lists to one item.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint64, reflect.Uint8:
		v.SetUint(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value, text)
		v.SetMapIndex(value, value)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), text)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), text)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field, text)
		}
	default:
		panic(v.Kind())
	}
}

// TestMadeFacts: a fact is read from a new event as from a stored one, whether the
// event keeps its value or, because of its texts, does not.
func TestMadeFacts(t *testing.T) {
	check := func(t *testing.T, e session.Event, made bool) {
		t.Helper()
		if (e.Made() != nil) != made {
			t.Errorf("%s is made of %v", e.Kind, e.Made())
		}
		got := must.Get(payload(e))(t)
		want := must.Get(payload(e.Of(nil)))(t)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s differs (-stored +made):\n%s", e.Kind, diff)
		}
	}
	for text, made := range map[string]bool{"x": true, "\u2028 \"\u00e9\"\n": true, "\ufffd": false, "a\xffb": false} {
		facts := map[string]any{
			KindSubmitted: &Submitted{}, KindWriter: &WriterOpened{}, KindClaimed: &Claimed{}, KindStepStarted: &StepStarted{}, KindStepCompleted: &StepCompleted{}, KindEnded: &Ended{},
		}
		for kind, v := range facts {
			check(t, event(kind, reflect.ValueOf(v).Elem().Interface()), true)
			fill(reflect.ValueOf(v).Elem(), text)
			check(t, event(kind, reflect.ValueOf(v).Elem().Interface()), made)
		}
	}
}
