package tool

import (
	"context"
	"errors"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rathcluster/rath/internal/agents/guide"
)

type skillArgs struct {
	Name string `json:"name" jsonschema:"name of the skill"`
}

type skillBody struct {
	Name   string   `json:"name"`
	Folder string   `json:"folder"`
	Text   string   `json:"text"`
	Files  []string `json:"files,omitempty"` // of its folder
	More   int      `json:"more,omitempty"`  // of them
}

const maxSkillFiles = 100 // in a result

// skill reads the files that the session had when the model made the call. It reads the
// stored head, which distinguishes links from files, and needs no sandbox.
func skill() Tool {
	return own(Skill,
		"Reads a skill of the workspace: instructions for one kind of work, and the names of its files. Scripts among them are run with "+RunShellCommand+".",
		ReadOnly, func(p map[string]*jsonschema.Schema) { p["name"].MinLength = new(1) },
		func(ctx context.Context, c Call, in skillArgs) (any, error) {
			head := c.Session.Placement().Head
			if head.IsZero() || c.Blobs == nil {
				return nil, &Failure{Kind: FileNotFound, Detail: in.Name, Message: "this session has no files, and so no skills"}
			}
			s, err := guide.Find(ctx, c.Blobs, head, in.Name)
			if errors.Is(err, guide.ErrNoSkill) {
				return nil, &Failure{Kind: FileNotFound, Detail: in.Name, Message: err.Error()[len("guide: "):]}
			}
			if err != nil {
				return nil, &Failure{Kind: OSError, Detail: in.Name, Message: "the skill cannot be read: " + err.Error(), Err: err}
			}
			body := skillBody{Name: s.Name, Folder: s.Folder, Text: s.Text, Files: s.Files}
			if n := len(s.Files); n > maxSkillFiles {
				body.Files, body.More = s.Files[:maxSkillFiles], n-maxSkillFiles
			}
			return body, nil
		})
}
