package opensandbox_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/opensandbox"
)

// A command in a sandbox of a server. The program is linked statically, and its main begins
// with opensandbox.Reexec().
func Example() {
	ctx := context.Background()
	b := opensandbox.New(opensandbox.Options{
		URL: "https://sandboxes.example.org/v1", KeyFile: "/run/secrets/opensandbox",
		Image: "example.org/tools@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
	})
	dir, err := os.MkdirTemp("", "workspace-")
	if err != nil {
		log.Fatal(err)
	}
	box, err := b.Open(ctx, sandbox.Spec{Dir: dir, Limits: sandbox.Limits{Disk: 1 << 30}})
	if err != nil {
		log.Fatal(err)
	}
	defer box.Close()
	e, err := box.Exec(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "echo hello > greeting"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(e.Ended, e.Code) // the command's changes are in dir now
}
