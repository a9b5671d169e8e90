package evidence

import (
	"io"
	"os"
	"path/filepath"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/evidence/openrath"
)

// namedFiles lists the files of the arguments, with archives separate from files of
// OpenRath.
func namedFiles(args []string) (archives, others []string, err error) {
	for _, arg := range args {
		fi, err := os.Stat(arg)
		if err != nil {
			return nil, nil, err
		}
		if !fi.IsDir() {
			if isArchive(arg) {
				archives = append(archives, arg)
			} else {
				others = append(others, arg)
			}
			continue
		}
		found, err := filepath.Glob(filepath.Join(arg, "*.json"))
		if err != nil {
			return nil, nil, err
		}
		for _, name := range found {
			if isArchive(name) {
				archives = append(archives, name)
			}
		}
		sessions, err := openrath.Scan(os.DirFS(arg), ".")
		if err != nil {
			return nil, nil, err
		}
		for _, l := range sessions {
			others = append(others, filepath.Join(arg, filepath.FromSlash(l.Name)))
		}
	}
	return archives, others, nil
}

// isArchive reports whether a file is an archive, by its beginning.
func isArchive(name string) bool {
	f, err := app.OpenRegular(name)
	if err != nil {
		return false // the reader of the file reports the error
	}
	defer f.Close()
	head := make([]byte, 4<<10)
	n, _ := io.ReadFull(f, head) // a short file is as good
	return dossier.IsTree(head[:n])
}
