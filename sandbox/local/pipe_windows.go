package local

import "os"

// unread has no effect here, as pipes have no deadlines.
func unread(*os.File, []byte, func([]byte)) {}
