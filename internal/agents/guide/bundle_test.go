package guide

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// copied has the blobs of several stores in one.
func copied(t *testing.T, heads map[blob.Digest]blob.Store) blob.Store {
	t.Helper()
	to := blob.NewMemory()
	for head, from := range heads {
		tree := must.Get(manifest.Load(t.Context(), from, head))(t)
		for d := range tree.Blobs() {
			put(t, from, to, d)
		}
		put(t, from, to, head)
	}
	return to
}

func put(t *testing.T, from, to blob.Store, d blob.Digest) {
	t.Helper()
	r, err := from.Get(t.Context(), d)
	must.Do(t, err)
	_, err = to.Put(t.Context(), r)
	must.Do(t, errors.Join(err, r.Close()))
}

func TestLayIn(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range MaxSkills + 1 {
		name := fmt.Sprintf("s%d", i)
		many[name+"/SKILL.md"] = skillText(name, "S.")
	}
	own := map[string]string{"a.go": "package a\n", ".claude/skills/pdf/SKILL.md": skillText("pdf", "Own.")}
	tests := []struct {
		name          string
		files, bundle map[string]string
		want          string // the names, or the error
	}{
		{"at the top", own, map[string]string{"zip/SKILL.md": skillText("zip", "Packs."), "zip/run.sh": "x", "zip/in": "-> run.sh", "docs/x": "y", "README.md": "z"}, "zip"},
		{"of a workspace", own, map[string]string{".agents/skills/zip/SKILL.md": skillText("zip", "Packs."), ".claude/skills/tar/SKILL.md": skillText("tar", "Packs.")}, "tar zip"},
		{"without files", nil, map[string]string{"zip/SKILL.md": skillText("zip", "Packs.")}, "zip"},
		{"a link that leads out", own, map[string]string{"zip/SKILL.md": skillText("zip", "Packs."), "zip/out": "-> ../../secret"}, `skill zip is refused: its link out leads out of its folder, to "../../secret"`},
		{"a link to the next", own, map[string]string{"zip/SKILL.md": skillText("zip", "Packs."), "zip/out": "-> ../tar/SKILL.md", "tar/SKILL.md": skillText("tar", "T.")}, "leads out of its folder"},
		{"another name", own, map[string]string{"zip/SKILL.md": skillText("tar", "Packs.")}, `says that its name is "tar"`},
		{"a name twice", own, map[string]string{"zip/SKILL.md": skillText("zip", "Packs."), ".claude/skills/zip/SKILL.md": skillText("zip", "Packs.")}, "two have the name zip"},
		{"a name of the files", own, map[string]string{"pdf/SKILL.md": skillText("pdf", "Reads.")}, "the files have a skill .claude/skills/pdf already"},
		{"a file in the way", map[string]string{".agents": "x"}, map[string]string{"zip/SKILL.md": skillText("zip", "Packs.")}, ".agents"},
		{"none", own, map[string]string{"a": "b"}, "there is no folder with a SKILL.md"},
		{"too many", nil, many, "more than 50"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			heads := map[blob.Digest]blob.Store{}
			from, bundle := headOf(t, tt.bundle)
			heads[bundle] = from
			var head blob.Digest
			if tt.files != nil {
				var b blob.Store
				b, head = headOf(t, tt.files)
				heads[head] = b
			}
			b := copied(t, heads)
			laid, names, err := LayIn(t.Context(), b, head, bundle)
			if err != nil {
				if !errors.Is(err, ErrBundle) || !strings.Contains(err.Error(), tt.want) || laid != head {
					t.Errorf("%v, want %s", err, tt.want)
				}
				return
			}
			if strings.Join(names, " ") != tt.want {
				t.Fatalf("laid in %q, want %s", names, tt.want)
			}
			g, err := Read(t.Context(), b, laid)
			if err != nil || len(g.Told) > 0 {
				t.Fatalf("%q %v", g.Told, err)
			}
			for _, name := range names {
				at := slices.IndexFunc(g.Skills, func(s Skill) bool { return s.Name == name })
				if at < 0 || g.Skills[at].Folder != Folders[0]+"/"+name {
					t.Errorf("%s is not among %+v", name, g.Skills)
				}
				if s, err := Find(context.Background(), b, laid, name); err != nil || s.Text == "" {
					t.Errorf("%+v %v", s, err)
				}
			}
			before, err := manifest.Load(t.Context(), b, laid)
			must.Do(t, err)
			for name := range tt.files {
				if _, ok := before.Lookup(name); !ok {
					t.Errorf("%s is gone", name)
				}
			}
			for _, name := range []string{"docs", "README.md"} {
				if _, ok := before.Lookup(name); ok {
					t.Errorf("%s, which is no skill, came along", name)
				}
			}
		})
	}
}
