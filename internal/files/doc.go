// Package files groups the packages for the files of a session: content-addressed trees,
// names, patterns of ignored files, and commits to Git.
package files
