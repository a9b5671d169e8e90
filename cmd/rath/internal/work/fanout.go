package work

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/workflows/router"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// fanOutFlags make the input of the workflow "fanout".
type fanOutFlags struct {
	branches []string
	join     string
	quorum   int
	timeout  time.Duration
	warm     bool
	merge    string
	pick     string
	files    string
}

func (f *fanOutFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringArrayVar(&f.branches, "branch", nil, "of fanout: a branch as `NAME`[*COUNT][=WORKFLOW][:INPUT]; can be given again")
	fs.StringVar(&f.join, "join", "", "of fanout: all, or first: the first success is enough (default all)")
	fs.IntVar(&f.quorum, "quorum", 0, "of fanout: number of successful branches that ends the wait")
	fs.DurationVar(&f.timeout, "branch-timeout", 0, "of fanout: time limit of the branches, such as 5m")
	fs.BoolVar(&f.warm, "warm-first", false, "of fanout: start the other branches after the first model answer of the first one, so they find the prompt in the provider's cache")
	fs.StringVar(&f.merge, "merge", "", "of fanout: since_ancestor, pick, best or summarise (default since_ancestor)")
	fs.StringVar(&f.pick, "pick", "", "of fanout: branch for --merge pick (default the first success)")
	fs.StringVar(&f.files, "files", "", "of fanout: merge the files of the branches, with this choice for conflicts: ours, theirs, both or judge (default only the files of the first branch)")
}

// fanOutNames are the flags in the order of the help.
var fanOutNames = []string{"branch", "join", "quorum", "branch-timeout", "warm-first", "merge", "pick", "files"}

// input puts the flags into the input of a task, whose message is then the prompt of
// the fan-out. It returns the workflows of the branches.
func (f *fanOutFlags) input(cmd *cobra.Command, workflow string, t *messages.Task) (workflows []string, err error) {
	given := slices.DeleteFunc(slices.Clone(fanOutNames), func(name string) bool { return !cmd.Flags().Changed(name) })
	switch {
	case len(given) > 0 && workflow != router.FanOut:
		return nil, app.Usage(cmd, fmt.Errorf("--%s belongs to the workflow %s, not to %s", given[0], router.FanOut, workflow))
	case len(f.branches) == 0 && workflow == router.FanOut && (len(given) > 0 || len(t.Input) == 0):
		return nil, app.Usage(cmd, fmt.Errorf("a fan-out needs branches: --branch NAME for one of the workflow agent, --branch NAME=WORKFLOW for one of another; or the whole input with -f FILE"))
	case len(f.branches) == 0 && workflow == router.FanOut && t.Input[0] != '{':
		return nil, app.Usage(cmd, fmt.Errorf("the message precedes the branches, and there is no branch: add --branch NAME, or give the whole input with -f FILE, a JSON object"))
	case len(f.branches) == 0:
		return nil, nil
	}
	in := router.FanOutInput{Merge: f.merge, Pick: f.pick, Files: f.files, TimeoutMS: f.timeout.Milliseconds(), WarmFirst: f.warm}
	if len(t.Input) > 0 && json.Unmarshal(t.Input, &in.Prompt) != nil {
		return nil, app.Usage(cmd, errors.New("with --branch the message is a text that precedes the branches; omit --branch to give the whole input as JSON"))
	}
	count := 0
	for _, text := range f.branches {
		b, err := branchOf(text)
		if err != nil {
			return nil, app.Usage(cmd, fmt.Errorf("--branch %q: %w", text, err))
		}
		in.Branches = append(in.Branches, b)
		n := 1
		if b.Count != nil {
			n = *b.Count
		}
		count += n
		if !slices.Contains(workflows, b.Workflow) {
			workflows = append(workflows, b.Workflow)
		}
	}
	switch {
	case f.join != "" && f.join != "all" && f.join != "first":
		return nil, app.Usage(cmd, fmt.Errorf("--join %q: want all or first; a number of branches is --quorum", f.join))
	case f.join != "" && cmd.Flags().Changed("quorum"):
		return nil, app.Usage(cmd, errors.New("give --join or --quorum, not both"))
	case cmd.Flags().Changed("quorum") && (f.quorum < 1 || f.quorum > count):
		return nil, app.Usage(cmd, fmt.Errorf("--quorum %d of %s: want 1 to %d", f.quorum, view.Counted(int64(count), "branch"), count))
	case cmd.Flags().Changed("branch-timeout") && f.timeout < time.Millisecond:
		return nil, app.Usage(cmd, errors.New("--branch-timeout is a positive duration, such as 5m"))
	case f.quorum > 0:
		in.Join.Quorum = &f.quorum
	}
	in.Join.First = f.join == "first"
	if err := in.Check(); err != nil {
		return nil, app.Usage(cmd, err)
	}
	t.Input, err = json.Marshal(in)
	return workflows, err
}

// branchOf parses NAME[*COUNT][=WORKFLOW][:INPUT].
func branchOf(text string) (router.BranchInput, error) {
	b := router.BranchInput{Workflow: "agent"}
	head, input, said := strings.Cut(text, ":")
	head, workflow, named := strings.Cut(head, "=")
	name, count, many := strings.Cut(head, "*")
	if err := session.ValidID("branch", name); err != nil {
		return b, fmt.Errorf("%w; want NAME[*COUNT][=WORKFLOW][:INPUT], such as loud*2=agent", err)
	}
	b.Name = name
	if many {
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			return b, fmt.Errorf("%q is no number of branches", count)
		}
		b.Count = &n
	}
	if named {
		if err := session.ValidID("workflow", workflow); err != nil {
			return b, err
		}
		b.Workflow = workflow
	}
	if b.Input = inputOf(strings.TrimLeft(input, " ")); said && len(b.Input) == 0 {
		return b, errors.New("there is no input after the colon")
	}
	return b, nil
}
