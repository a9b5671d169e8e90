package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// patience is how long an engine may take for one operation: to answer, to create a
// container that answers, to remove one.
const patience = time.Minute

var (
	errNotFound = errors.New("not found")
	errNoEngine = errors.New("the reply is not from an engine")
	errOldAPI   = errors.New("its API is older than " + oldestAPI)
)

// oldestAPI is the API of the first engine that supports every request of this package:
// Docker 19.03. An older one silently ignores fields that it does not support.
const oldestAPI = "1.40"

// asking bounds one request to the engine.
func (b *driver) asking(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, b.patience)
}

// explain adds the engine's address and a remedy to an error.
func (b *driver) explain(what string, err error) error {
	return fmt.Errorf("%s, engine at %s: %w%s", what, b.engine.address(), err, b.remedy(err))
}

func (b *driver) remedy(err error) string {
	text := err.Error()
	gone, denied := b.engine.class(err)
	switch {
	case errors.Is(err, context.Canceled):
		return ""
	case errors.Is(err, context.DeadlineExceeded):
		return "; it does not answer in time: check its log, and restart it"
	case strings.Contains(text, "permission denied while trying to connect"):
		return "; let this user write to the socket, by the group that owns it"
	case errors.Is(err, errOldAPI), strings.Contains(text, "client version"), strings.Contains(text, "API version"):
		return "; unset DOCKER_API_VERSION if it is set, otherwise use Docker 19.03 or newer, supported by this client"
	case denied:
		return "; have the engine's authorization plugin allow it, or name another engine (DOCKER_HOST)"
	case gone, errors.Is(err, errNotFound):
		return "; pull, build or import the image there"
	case errors.Is(err, errNoEngine), strings.Contains(text, "malformed HTTP"), strings.Contains(text, "invalid character"), strings.Contains(text, "connect"):
		return "; start an engine there, or name its address (DOCKER_HOST)"
	}
	return "; check the engine's log"
}
