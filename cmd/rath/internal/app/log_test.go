package app

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
)

// TestStandardLogger: the lines that libraries log come with --verbose alone.
func TestStandardLogger(t *testing.T) {
	out, flags := log.Writer(), log.Flags()
	defer func() { log.SetOutput(out); log.SetFlags(flags) }()
	for _, args := range [][]string{{"--store", t.TempDir()}, {"--store", t.TempDir(), "--verbose"}} {
		var stdout, stderr bytes.Buffer
		a := New("rath", strings.NewReader(""), &stdout, &stderr, func(string) string { return "" })
		root := &cobra.Command{
			Use:               "rath",
			PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.Prepare(cmd) },
			RunE:              func(*cobra.Command, []string) error { log.Print("a server's \x1b[2J"); return nil },
		}
		a.Globals(root.PersistentFlags())
		if code := a.Run(root, args); code != 0 {
			t.Fatalf("%q: exit code %d: %s", args, code, stderr.String())
		}
		if got := stderr.String(); strings.Contains(got, "a server's") != (len(args) > 2) || strings.Contains(got, "\x1b[2J") || stdout.Len() > 0 {
			t.Errorf("%q: %q, %q", args, stdout.String(), got)
		}
	}
}

// TestProgress tells a program how far a command is once in a while, and nothing of one
// that is done before.
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
