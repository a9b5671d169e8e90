package work

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// agent puts the values of --tool-choice, --agents and --attach into the input of the task. It
// returns the bytes of the images, which are to be stored before the task is sent.
func (f *taskFlags) agent(a *app.App, cmd *cobra.Command, workflow string, t *messages.Task) (images [][]byte, err error) {
	switch {
	case f.choice == "" && cmd.Flags().Changed("tool-choice"):
		return nil, app.Usage(cmd, errors.New("--tool-choice is empty: want required, none, auto, or the name of a tool"))
	case f.choice == "" && len(f.attach) == 0 && len(f.agents) == 0:
		return nil, nil
	case workflow != "agent" && (f.choice != "" || len(f.attach) > 0):
		return nil, app.Usage(cmd, fmt.Errorf("--tool-choice and --attach are of the workflow agent, and this is %s", workflow))
	case len(f.attach) > session.MaxImages:
		return nil, app.Usage(cmd, fmt.Errorf("--attach: %d images, at most %d are taken", len(f.attach), session.MaxImages))
	case len(f.attach) > 0 && len(t.Input) == 0:
		return nil, app.Usage(cmd, errors.New("--attach needs a prompt: -m TEXT"))
	}
	in, err := members(t.Input)
	if err != nil {
		return nil, app.Usage(cmd, err)
	}
	digests := []string{}
	for _, name := range f.attach {
		data, err := a.ReadInput(name, session.MaxImage)
		if err != nil {
			return nil, err
		}
		image, err := session.NewImage(data)
		if err != nil {
			return nil, app.Fail(app.ExitUsage, "--attach %s: %s", name, messages.Text(err))
		}
		digests, images = append(digests, image.Digest.String()), append(images, data)
	}
	for _, set := range []struct {
		flag, member string
		value        any
		given        bool
	}{{"--tool-choice", "tool_choice", f.choice, f.choice != ""}, {"--attach", "images", digests, len(digests) > 0}, {"--agents", "agents", f.agents, len(f.agents) > 0}} {
		if !set.given {
			continue
		}
		if _, there := in[set.member]; there {
			return nil, app.Usage(cmd, fmt.Errorf("give %s, or %q in the input, not both", set.flag, set.member))
		}
		if in[set.member], err = json.Marshal(set.value); err != nil {
			return nil, err
		}
	}
	t.Input, err = json.Marshal(in)
	return images, err
}

// members returns the members of an agent's input, which may be only its prompt.
func members(input json.RawMessage) (map[string]json.RawMessage, error) {
	in := map[string]json.RawMessage{}
	switch {
	case len(input) == 0:
	case input[0] == '"':
		in["prompt"] = input
	case json.Unmarshal(input, &in) != nil:
		return nil, errors.New("the input of agent is a text, or an object with prompt")
	}
	return in, nil
}

// storeImages stores the images of --attach.
func storeImages(ctx context.Context, s *app.System, images [][]byte) error {
	for _, data := range images {
		if _, err := s.Blobs(s.Tenant()).Put(ctx, bytes.NewReader(data)); err != nil {
			return fmt.Errorf("store an image of %d bytes: %w", len(data), err)
		}
	}
	return nil
}
