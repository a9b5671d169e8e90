package natsserver_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/rathcluster/rath/internal/nats/natsserver"
)

// A store directory belongs to one server at a time.
func ExampleStart() {
	dir, err := os.MkdirTemp("", "rath-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()

	srv, err := natsserver.Start(ctx, &natsserver.Options{StoreDir: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	always, _, err := srv.Sync()
	fmt.Println("syncs every write:", always, err)

	_, err = natsserver.Start(ctx, &natsserver.Options{StoreDir: dir})
	fmt.Println("in use:", errors.Is(err, natsserver.ErrStoreInUse))

	fmt.Println("shut down:", srv.Shutdown(ctx))
	// Output:
	// syncs every write: true <nil>
	// in use: true
	// shut down: <nil>
}
