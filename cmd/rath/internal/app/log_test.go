package app

import (
	"bytes"
	"log"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestStandardLogger: the log lines of libraries appear with --verbose only.
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
