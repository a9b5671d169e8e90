package translate_test

import (
	"fmt"

	"github.com/rathcluster/rath/internal/wire/translate"
)

// The entry of a run's id in the bucket ALIAS names the session with its log.
func ExampleDecodeAlias() {
	key := translate.RunAliasKey("default", "run-1")
	a, err := translate.DecodeAlias([]byte(`{"session":"s1","digest":"5f6c1c523b0e4a55"}`))
	fmt.Println(key, "is in session", a.Session, err)
	// Output:
	// default.run.run-1 is in session s1 <nil>
}
