//go:build next

package release

// Ahead is how many releases this program is ahead: what it numbers its own
// formats with is higher by that.
const Ahead = 1

// field is the one that Extend adds. No object has a name that sorts after it,
// so that what was canonical stays so.
const field = `"zone":"next"}`

// Extend returns a JSON object with the optional fields that a later release
// writes. What is no object stays as it is.
func Extend[T ~string | ~[]byte](object T) T {
	n := len(object)
	if n < 2 || object[0] != '{' || object[n-1] != '}' {
		return object
	}
	out := append(make([]byte, 0, n+len(field)+1), object[:n-1]...)
	if n > 2 {
		out = append(out, ',')
	}
	return T(append(out, field...))
}
