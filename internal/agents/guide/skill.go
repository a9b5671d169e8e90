package guide

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
)

// skillFile is the file that makes a folder a skill.
const skillFile = "SKILL.md"

// Folders are the locations of skills, in order of precedence.
var Folders = []string{".agents/skills", ".claude/skills"}

// Skill is a folder with instructions for one kind of work.
type Skill struct {
	Name        string
	Description string
	Folder      string
	Text        string   // of SKILL.md, without the front matter
	Files       []string // all others, relative to the workspace
}

// ErrNoSkill is returned by Find.
var ErrNoSkill = errors.New("guide: there is no such skill")

var skillName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// skills reads the skills, sorted by name.
func (r *reader) skills(g *Guide) error {
	listed := 0
	for _, in := range Folders {
		e, ok := r.tree.Lookup(in)
		if !ok {
			continue
		}
		if e.Kind != manifest.Dir {
			if to := path.Join(path.Dir(in), e.Target); e.Kind != manifest.Symlink || !slices.Contains(Folders, to) {
				g.Told = append(g.Told, in+" is no directory, links are not followed")
			}
			continue
		}
		folders := r.below(in)
		if len(folders) > MaxLooked {
			g.Told = append(g.Told, fmt.Sprintf("%s holds more than %d folders", in, MaxLooked))
			folders = folders[:MaxLooked]
		}
		for _, folder := range folders {
			s, err := r.skill(folder)
			if refused, ok := errors.AsType[refusal](err); ok {
				g.Told = append(g.Told, fmt.Sprintf("skill %s %s", folder.Path, string(refused)))
				continue
			}
			if err != nil {
				return err
			}
			switch {
			case slices.ContainsFunc(g.Skills, func(o Skill) bool { return o.Name == s.Name }):
				g.Told = append(g.Told, fmt.Sprintf("skill %s has the name of another one", folder.Path))
			case len(g.Skills) == MaxSkills:
				g.Told = append(g.Told, fmt.Sprintf("there are more than %d skills", MaxSkills))
				return nil
			case listed+len(s.Name)+len(s.Description) > MaxListed:
				g.Told = append(g.Told, fmt.Sprintf("skill %s: all descriptions together have more than %d bytes", folder.Path, MaxListed))
			default:
				listed += len(s.Name) + len(s.Description)
				s.Text = ""
				g.Skills = append(g.Skills, s)
			}
		}
	}
	slices.SortFunc(g.Skills, func(a, b Skill) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// Find returns the skill of a name, with its text.
func Find(ctx context.Context, b blob.Store, head blob.Digest, name string) (Skill, error) {
	r, err := newReader(ctx, b, head)
	if err != nil {
		return Skill{}, err
	}
	var names []string
	for _, in := range Folders {
		for _, folder := range r.below(in) {
			base := path.Base(folder.Path)
			if base != name {
				names = append(names, base)
				continue
			}
			s, err := r.skill(folder)
			if refused, ok := errors.AsType[refusal](err); ok {
				return s, fmt.Errorf("%w: %s %s", ErrNoSkill, folder.Path, string(refused))
			}
			return s, err
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) > MaxSkills {
		names = names[:MaxSkills]
	}
	return Skill{}, fmt.Errorf("%w as %q; there are: %s", ErrNoSkill, clip(name), strings.Join(names, ", "))
}

// below returns the entries directly in a directory.
func (r *reader) below(dir string) (all []manifest.Entry) {
	for e := range r.tree.Entries() {
		if path.Dir(e.Path) == dir {
			all = append(all, e)
		}
	}
	return all
}

// refusal is the reason to skip a skill.
type refusal string

func (r refusal) Error() string { return string(r) }

// skill reads one skill. The error is a refusal if it cannot be used.
func (r *reader) skill(folder manifest.Entry) (Skill, error) {
	s := Skill{Folder: folder.Path}
	refuse := func(format string, args ...any) (Skill, error) { return s, refusal(fmt.Sprintf(format, args...)) }
	switch {
	case folder.Kind == manifest.Symlink:
		return refuse("is a link, which is not followed: put the folder there")
	case folder.Kind != manifest.Dir:
		return refuse("is no folder")
	}
	var bytes int64
	var main manifest.Entry
	for e := range r.tree.Entries() {
		inside, ok := strings.CutPrefix(e.Path, folder.Path+"/")
		if !ok || e.Kind == manifest.Dir {
			continue
		}
		if e.Kind == manifest.Symlink && !manifest.LinkStaysInside(inside, e.Target) {
			return refuse("is refused: its link %s leads out of its folder, to %q", inside, clip(e.Target))
		}
		if bytes += e.Size; bytes > MaxBytes {
			return refuse("has more than %d MiB", MaxBytes>>20)
		}
		if inside == skillFile {
			main = e
			continue
		}
		if s.Files = append(s.Files, e.Path); len(s.Files) > MaxFiles {
			return refuse("has more than %d files", MaxFiles)
		}
	}
	switch {
	case main.Kind == "":
		return refuse("has no %s", skillFile)
	case main.Kind != manifest.File:
		return refuse("is refused: its %s is a link", skillFile)
	case main.Size > MaxSkill:
		return refuse("has a %s of %d bytes, at most %d are taken", skillFile, main.Size, MaxSkill)
	}
	text, err := r.read(main, MaxSkill)
	if err != nil {
		return s, err
	}
	if strings.IndexByte(text, 0) >= 0 {
		return refuse("has a binary %s", skillFile)
	}
	if err := s.parse(text); err != nil {
		return s, err
	}
	if s.Name != path.Base(folder.Path) {
		return refuse("says that its name is %q, which is not that of its folder", clip(s.Name))
	}
	return s, nil
}

// CutFront divides a Markdown text into its front matter, between lines of ---, and the
// rest.
func CutFront(text string) (head, body string, ok bool) {
	text = strings.TrimPrefix(strings.ToValidUTF8(strings.ReplaceAll(text, "\r\n", "\n"), "\ufffd"), "\ufeff")
	rest, ok := strings.CutPrefix(text, "---\n")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "\n---\n")
}

// parse reads SKILL.md: name and description in YAML between lines of ---, then the text.
func (s *Skill) parse(text string) error {
	head, body, ok := CutFront(text)
	if !ok {
		return refusal("has a " + skillFile + " that does not begin with ---, name and description in YAML, and ---")
	}
	var said struct {
		Name        string `yaml:"name"`
		Description string `yaml:"description"`
	}
	if err := yaml.Unmarshal([]byte(head), &said); err != nil {
		return refusal("begins with what is no YAML: " + clip(err.Error()))
	}
	said.Description = strings.Join(strings.Fields(said.Description), " ")
	switch {
	case !skillName.MatchString(said.Name) || len(said.Name) > 64:
		return refusal(fmt.Sprintf("has the name %q: want small letters, digits and - between them, at most 64", clip(said.Name)))
	case said.Description == "" || len([]rune(said.Description)) > 1024:
		return refusal(fmt.Sprintf("has a description of %d characters, want 1 to 1024", len([]rune(said.Description))))
	}
	s.Name, s.Description, s.Text = said.Name, said.Description, strings.TrimSpace(body)
	return nil
}
