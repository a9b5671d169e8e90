package sandbox_test

import (
	"fmt"

	"github.com/rathcluster/rath/sandbox"
)

// Output that is too long keeps its beginning and its end.
func ExampleOutput_Bytes() {
	out := sandbox.Output{Head: []byte("compilin"), Tail: []byte(", failed"), Total: 48}
	fmt.Printf("%s\n%d\n", out.Bytes(), out.Dropped())
	// Output:
	// compilin
	// [... 32 bytes dropped ...]
	// , failed
	// 32
}
