package app

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgress reports the progress of a command to a program once in a while, and none
// of a command that ends before.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr bytes.Buffer
		a := New("rath", os.Stdin, &bytes.Buffer{}, &stderr, func(string) string { return "" })
		tell := a.Progress()
		for i := range 250 {
			time.Sleep(100 * time.Millisecond)
			tell(fmt.Sprint(i+1, " of 250"))
		}
		tell("")
		if got, want := stderr.String(), "100 of 250\n200 of 250\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
