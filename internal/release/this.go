//go:build !next

package release

// Ahead is how many releases this program is ahead: what it numbers its own
// formats with is higher by that.
const Ahead = 0

// Extend returns a JSON object with the optional fields that a later release
// writes: in this one, as it is.
func Extend[T ~string | ~[]byte](object T) T { return object }
