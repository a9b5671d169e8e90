package overlay

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// options are the options of each mount. Without redirect_dir a directory of lower cannot
// be renamed; volatile disables syncing, also at the end of the mount. The others set the
// defaults, which a system may have changed. Callers rely on them: a file that no command
// wrote is the file of lower, with its inode and times.
const options = "redirect_dir=on,index=off,metacopy=off,nfs_export=off,volatile"

// mount names the directories by handles: a path may contain the separators of options, and
// be too long for them.
func mount(lower, files, work, dir string) error {
	var data strings.Builder
	data.WriteString(options)
	for _, o := range []struct{ name, dir string }{{"lowerdir", lower}, {"upperdir", files}, {"workdir", work}} {
		f, err := os.Open(o.dir)
		if err != nil {
			return err
		}
		defer f.Close()
		fmt.Fprintf(&data, ",%s=/proc/self/fd/%d", o.name, f.Fd())
	}
	if err := syscall.Mount("rath", dir, "overlay", syscall.MS_NODEV|syscall.MS_NOSUID, data.String()); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return nil
}

// unmount detaches the mount at once, without waiting for processes of a command that have
// not quite ended.
func unmount(dir string) error {
	err := syscall.Unmount(dir, syscall.MNT_DETACH|umountNoFollow)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}

const umountNoFollow = 0x8

func clearBelow(dir string) error {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	below, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range slices.Backward(below) { // unmount in reverse order
		if err := unmount(m); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m, err))
		}
	}
	return errors.Join(errs...)
}

// mountsBelow lists the mount points below a directory, in the order of mounting.
func mountsBelow(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var below []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		if at := unescape(fields[4]); strings.HasPrefix(at, dir+"/") {
			below = append(below, at)
		}
	}
	return below, lines.Err()
}

// unescape decodes a path of mountinfo, which has spaces and the like as three octal
// digits.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func sameInode(a, b os.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, also := b.Sys().(*syscall.Stat_t)
	return ok && also && x.Ino == y.Ino
}
