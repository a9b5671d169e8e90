package natsbus

import (
	"context"
	"sync/atomic"
)

// Conn is a connection to the streams, and what runs on them. It is safe for concurrent use.
type Conn struct {
	*Dispatch
	// renewed is the last renewal of this node's entry, nil before there was one.
	renewed atomic.Pointer[renewal]
}

// Connect connects and, unless Options.Client is set, verifies that the
// servers store as the level demands. It fails at once when no server answers
// (ErrUnreachable), when they refuse the credentials (ErrDenied) and when they
// promise less (ErrDurability).
func Connect(ctx context.Context, o *Options) (*Conn, error) {
	st, err := openStore(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Conn{Dispatch: NewDispatch(NewArchive(NewProjections(NewLogs(st))))}, nil
}
