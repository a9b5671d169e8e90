//go:build off_append_cas

package protection

// AppendCAS: a commit is appended only after the one that its writer saw last.
const AppendCAS = false
