package lineage_test

import (
	"reflect"
	"testing"

	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// fill sets all fields of a value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, key := range []string{"b", "a", "\u2028"} {
			value := reflect.New(v.Type().Elem()).Elem()
			fill(value)
			v.SetMapIndex(reflect.ValueOf(key), value)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(1))
	case reflect.String:
		v.SetString("a \"b\" \\ <&> \n \u2028 é \xff")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(-7)
	default:
		v.SetUint(1<<32 - 1)
	}
}

// TestEncodeIsCanonical checks that the encoding field by field agrees with the record's
// type.
func TestEncodeIsCanonical(t *testing.T) {
	var full messages.Record
	fill(reflect.ValueOf(&full).Elem())
	records := []messages.Record{{}, full}
	for i := range reflect.TypeFor[messages.Record]().NumField() { // each field by itself
		var one messages.Record
		fill(reflect.ValueOf(&one).Elem().Field(i))
		records = append(records, one)
	}
	for _, r := range records {
		got := must.Get(lineage.EncodeRecord(&r))(t)
		if want := canonical.MustMarshal(&r); string(got) != want {
			t.Errorf("it is\n%s\nwant\n%s", got, want)
		}
	}
}

func BenchmarkEncodeStored(b *testing.B) {
	records := []messages.Record{{
		Schema: lineage.Schema, Tenant: "acme", Root: "s1", Session: "s1", Commit: 4, Epoch: 1, Hash: session.Hash{}.String(), K: 1, Kind: messages.KindModel,
		Agent: "coder", Name: "coder", Attempt: 1, Model: "m", Node: "n1", Revision: "1", Role: "assistant", Rows: 1, Run: "r1", Step: "1",
		Summary: `coder says "done"`, Time: 1795743380607, Usage: session.Usage{Calls: 1, Input: 100, Output: 20}, Workflow: "fix",
	}}
	b.ReportAllocs()
	for b.Loop() {
		must.Get(lineage.EncodeStored(records))(b)
	}
}
