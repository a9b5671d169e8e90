package rules

import (
	"path"
	"strings"
)

// runners are programs that run the program which their arguments name, or that change what
// later commands mean. A rule that allows them has to name the words up to that program.
var runners = map[string]bool{
	".": true, "alias": true, "awk": true, "bash": true, "builtin": true, "busybox": true, "chroot": true, "command": true, "csh": true,
	"dash": true, "doas": true, "docker": true, "env": true, "eval": true, "exec": true, "expect": true, "fish": true,
	"flock": true, "gawk": true, "hash": true, "ionice": true, "ksh": true, "ld.so": true, "mawk": true, "nice": true, "nohup": true, "nsenter": true,
	"parallel": true, "podman": true, "script": true, "setarch": true, "setpriv": true, "setsid": true, "sh": true, "source": true,
	"stdbuf": true, "strace": true, "su": true, "sudo": true, "time": true, "timeout": true, "tmux": true, "toybox": true,
	"trap": true, "unshare": true, "watch": true, "xargs": true, "zsh": true,
}

// options are the options with which programs run other programs, write files that they do
// not name otherwise, or read more options from a file. A short option stands for all words
// of one dash with its letter, a long one for each of its abbreviations.
var options = map[string][]string{
	"7z":      {"-si", "-so"},
	"ar":      {"--plugin"},
	"awk":     {"-f", "-i", "-l", "-E", "--file", "--include", "--load", "--exec"},
	"cargo":   {"--config"},
	"cpio":    {"--rsh-command", "-F", "--file", "-I", "-O"},
	"curl":    {"-K", "--config", "-o", "-O", "--output", "--remote-name", "-T", "--upload-file", "-d", "--data", "-F", "--form", "--json"},
	"date":    {"-f", "--file", "-s", "--set"},
	"diff":    {"--to-file", "--from-file"},
	"ed":      {"-p"},
	"emacs":   {"-f", "-l", "--eval", "--load", "--batch", "--script", "--execute"},
	"find":    {"-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls", "-files0-from"},
	"gawk":    {"-f", "-i", "-l", "-E", "--file", "--include", "--load", "--exec"},
	"gcc":     {"-wrapper", "-B", "-fplugin", "-specs"},
	"gdb":     {"-x", "-ex", "--command", "--eval-command", "-iex", "-ix"},
	"git":     {"-c", "--config-env", "--exec-path", "--exec", "-x", "--upload-pack", "--receive-pack", "-u", "--ext-diff", "--textconv", "--output", "-O", "--open-files-in-pager", "-C", "--git-dir", "--work-tree", "--hook", "--template", "--extcmd", "--tool", "--trailer", "--gpg-sign", "--editor", "--paginate"},
	"go":      {"-exec", "-toolexec", "-vettool", "-overlay", "-modfile", "-C", "-ldflags", "-gcflags", "-asmflags", "-gccgoflags"},
	"gofmt":   {"-w", "-r", "-cpuprofile"},
	"gpg":     {"--options", "--exec-path", "--photo-viewer", "--keyserver-options"},
	"grep":    {"-f", "--file"},
	"less":    {"-k", "-o", "-O", "--lesskey-file", "--log-file", "-P"},
	"ln":      {"-t"},
	"make":    {"-f", "--file", "--makefile", "--eval", "-C", "--directory", "-I"},
	"man":     {"-P", "--pager", "-H", "--html", "-C"},
	"mawk":    {"-f", "-W"},
	"mysql":   {"-e", "--execute", "--defaults-file", "--pager"},
	"nc":      {"-e", "-c", "--exec", "--sh-exec"},
	"node":    {"-e", "-p", "-r", "--eval", "--print", "--require", "--import", "--loader", "--experimental-loader"},
	"npm":     {"--node-options", "--script-shell", "--prefix", "--userconfig", "--globalconfig"},
	"perl":    {"-e", "-E", "-M", "-m", "-n", "-p", "-i", "-I", "-x"},
	"php":     {"-r", "-B", "-R", "-F", "-E", "-d", "-c", "-z"},
	"psql":    {"-c", "-f", "--command", "--file", "-o", "--output"},
	"python":  {"-c", "-m", "-W", "-X"},
	"rg":      {"--pre", "--hostname-bin", "--search-zip", "-z", "-f"},
	"rsync":   {"-e", "--rsh", "--rsync-path", "-M", "--remote-option", "--files-from", "--log-file"},
	"ruby":    {"-e", "-r", "-n", "-p", "-i", "-I", "-x"},
	"scp":     {"-o", "-F", "-S", "-D", "-J"},
	"sed":     {"-e", "-f", "-i", "-s", "--expression", "--file", "--in-place"},
	"sort":    {"-o", "--output", "--compress-program", "-T", "--temporary-directory", "--files0-from"},
	"split":   {"--filter"},
	"sqlite3": {"-cmd", "-init"},
	"ssh":     {"-o", "-F", "-E", "-J", "-L", "-R", "-D", "-w", "-I", "-S", "-W"},
	"tar":     {"-I", "-F", "--use-compress-program", "--to-command", "--checkpoint-action", "--info-script", "--new-volume-script", "--rsh-command", "--rmt-command", "-T", "--files-from", "-C", "--directory", "--wildcards-match-slash"},
	"tree":    {"-o"},
	"vi":      {"-c", "-S", "-s", "-u", "--cmd", "+"},
	"vim":     {"-c", "-S", "-s", "-u", "--cmd", "+"},
	"wget":    {"-i", "-o", "-O", "-e", "--execute", "--use-askpass", "--output-document", "--output-file", "--config", "--post-file", "--body-file", "-P"},
	"zip":     {"-T", "-TT", "--unzip-command"},
}

// programOf returns the name of a program without its folder, its version and ".exe".
func programOf(word string) string {
	name := strings.TrimSuffix(path.Base(word), ".exe")
	short := strings.TrimRight(name, "0123456789.-")
	if runners[short] || options[short] != nil {
		return short
	}
	return name
}

// runs reports whether a word of a program's arguments is an option with which the program
// runs another one.
func runs(program, word string) bool {
	for _, option := range options[program] {
		if isOption(word, option) {
			return true
		}
	}
	return false
}

func isOption(word, option string) bool {
	switch {
	case len(word) < 2 || word == "--":
		return false
	case strings.HasPrefix(option, "--"):
		name, _, _ := strings.Cut(word, "=")
		return len(name) > 3 && strings.HasPrefix(option, name) || strings.HasPrefix(word, option)
	case option == "+":
		return word[0] == '+'
	case len(option) == 2: // alone, among others, or before its value
		return word[0] == '-' && word[1] != '-' && strings.ContainsRune(word, rune(option[1]))
	default: // a long one of one dash, as those of find and go
		name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
		return word[0] == '-' && name == option[1:]
	}
}
