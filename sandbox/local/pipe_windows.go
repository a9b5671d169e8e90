package local

import "os"

// unread: pipes have no deadlines here.
func unread(*os.File, []byte, func([]byte)) {}
