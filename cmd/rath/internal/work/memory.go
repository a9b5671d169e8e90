package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/memory"
)

// Memories are the commands below "memory".
func Memories(a *app.App) []*cobra.Command {
	return []*cobra.Command{memoryLs(a), memoryFind(a), memoryAdd(a), memoryRead(a), memoryForget(a), memoryExport(a), memoryImport(a)}
}

// written is a note as programs read it.
type written struct {
	URI    string        `json:"uri"`
	Text   string        `json:"text"`
	Origin memory.Origin `json:"origin,omitzero"`
}

// root is the prefix of the URIs of all notes.
const root = "memory://"

// inMemory opens the memory of a name.
func inMemory(ctx context.Context, a *app.App, name string, do func(s *app.System, m memory.Store) error) error {
	return a.With(ctx, func(s *app.System) error {
		m, err := s.Memory.Open(name)
		if err != nil {
			return app.WithCode(app.ExitUsage, err)
		}
		return noted(do(s, m))
	})
}

// noted adds exit codes to errors of memories.
func noted(err error) error {
	switch {
	case errors.Is(err, memory.ErrInvalidURI), errors.Is(err, memory.ErrTooLarge):
		return app.WithCode(app.ExitUsage, err)
	case errors.Is(err, memory.ErrFull):
		return app.WithCode(app.ExitUnavailable, err)
	}
	return err
}

func memoryLs(a *app.App) *cobra.Command {
	limit := 0
	cmd := &cobra.Command{
		Use:   "ls [NAME [URI]]",
		Short: "List the memories, or the notes of one",
		Long: `Lists the names of the memories, or with a name the notes of one: all of them,
or those at and below URI, each with its first line.`,
		Example: "  rath memory ls\n  rath memory ls team memory://user/memories/preferences",
		Args:    app.Between(0, 2, "the name of a memory and a URI"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return app.Usage(cmd, errors.New("--limit is a positive number"))
			}
			ctx := cmd.Context()
			if len(args) == 0 {
				return a.With(ctx, func(s *app.System) error { return listMemories(ctx, a, s, limit) })
			}
			under := root
			if len(args) > 1 {
				under = args[1]
			}
			return inMemory(ctx, a, args[0], func(s *app.System, _ memory.Store) error {
				return listNotes(ctx, a, s, args[0], under, limit)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "list no more than so many")
	return cmd
}

func listMemories(ctx context.Context, a *app.App, s *app.System, limit int) error {
	names, err := s.Memory.List(ctx)
	if err != nil {
		return err
	}
	more := len(names) > limit
	names = names[:min(len(names), limit)]
	if done, err := app.Emit(a, names); done {
		return err
	}
	for _, name := range names {
		a.Out.Println(name)
	}
	switch {
	case more:
		a.Remark("there are more; list them with --limit %d", 10*limit)
	case len(names) == 0:
		a.Remark("no memory of tenant %s has a note; %q writes one", s.Tenant(), a.Hint("memory", "add", "NAME", "TEXT"))
	}
	return nil
}

func listNotes(ctx context.Context, a *app.App, s *app.System, name, under string, limit int) error {
	var all []written
	err := s.Memory.Each(ctx, name, under, limit+1, func(uri, text string, from memory.Origin) error {
		all = append(all, written{uri, text, from})
		return nil
	})
	if err != nil && !errors.Is(err, memory.ErrTooLarge) {
		return err
	}
	large := err
	more := len(all) > limit
	all = all[:min(len(all), limit)]
	done, err := app.Emit(a, all)
	if err != nil {
		return err
	}
	if !done {
		for _, n := range all {
			first, _, _ := strings.Cut(strings.TrimSpace(n.Text), "\n")
			a.Out.Printf("%s\n  %s\n", term.Clean(n.URI), term.Line(first, a.Out.Width()-2))
		}
	}
	switch {
	case more:
		a.Remark("there are more; name what they are below, or list them with --limit %d", 10*limit)
	case len(all) == 0 && !done && large == nil:
		a.Remark("memory %s of tenant %s has no notes there", name, s.Tenant())
	}
	return large
}

func memoryFind(a *app.App) *cobra.Command {
	var q memory.Query
	cmd := &cobra.Command{
		Use:   "find NAME TEXT",
		Short: "Find the notes of a memory that match a text best",
		Long: `Finds the notes that match a text best, best first, as agents find them: by the
words of both, in any script. A note that shares no word is not found, unless
the nodes' list of models names one under "memory": then vectors count, too.
With --scores openrath they are found and scored as the local memory of OpenRath
finds them, those that share no word among them.`,
		Example: `  rath memory find team "which theme?"
  rath memory find team "slugs" --under memory://agent --limit 3
  rath memory find team "dark theme" --scores openrath`,
		Args: app.Exactly(2, "the name of a memory and a text"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if q.Limit < 1 || q.Limit > memory.MaxLimit {
				return app.Usage(cmd, fmt.Errorf("--limit %d: want 1 to %d", q.Limit, memory.MaxLimit))
			}
			if strings.TrimSpace(args[1]) == "" {
				return app.Usage(cmd, errors.New("the text is empty: say what to look for"))
			}
			if q.Scores != "" && q.Scores != memory.ScoresOpenRath {
				return app.Usage(cmd, fmt.Errorf("--scores %s: want %s", q.Scores, memory.ScoresOpenRath))
			}
			ctx := cmd.Context()
			q.Text = args[1]
			return inMemory(ctx, a, args[0], func(s *app.System, m memory.Store) error {
				hits, err := m.Find(ctx, q)
				if errors.Is(err, memory.ErrWordsOnly) {
					a.Remark("%s", term.Clean(err.Error()))
				} else if err != nil {
					return err
				}
				if done, err := app.Emit(a, hits); done {
					return err
				}
				for _, h := range hits {
					score := ""
					if q.Scores != "" {
						score = fmt.Sprintf("  %.6f", float64(h.Score)/1e6)
					}
					a.Out.Println(term.Clean(h.URI) + score)
					for _, line := range term.Wrap(term.Clean(strings.Join(strings.Fields(h.Snippet), " ")), a.Out.Width()-2) {
						a.Out.Println("  " + line)
					}
				}
				if len(hits) == 0 {
					a.Remark("no note of memory %s of tenant %s shares a word with that", args[0], s.Tenant())
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&q.Under, "under", "", "only notes at and below this `URI`")
	cmd.Flags().IntVar(&q.Limit, "limit", memory.DefaultLimit, "find no more than so many")
	cmd.Flags().StringVar(&q.Scores, "scores", "", "score as `openrath` does, and show the scores")
	return cmd
}

func memoryAdd(a *app.App) *cobra.Command {
	var uri, category, from string
	cmd := &cobra.Command{
		Use:   "add NAME [TEXT]",
		Short: "Write a note, or the text of files, and print the URI",
		Long: `Writes a note into a memory and prints its URI; TEXT - is read from standard
input. Agents with this memory recall it from then on, on all nodes, quoted and
with the user who wrote it. Without --uri the name comes from the text, so that
the same text again is the same note. With --uri what was there is replaced.

With --from it adds a file, or the files of a directory, as resources: the text
of each, cut into passages, below memory://resources/ and its path. Adding it
again replaces what changed. Left out by name are files that are empty or not
text, names that a URI cannot have, and links: only PATH itself may be one.
Names that begin with a dot are not looked at. At most 1,000 files, 4 MiB each
and 16 MiB in all; more is refused before anything is written.`,
		Example: `  rath memory add team "Slugs skip empty words." --category style
  rath memory add team - --uri memory://resources/guide < guide.md
  rath memory add team --from docs`,
		Args: app.Between(1, 2, "the name of a memory and a text"),
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed
			switch {
			case given("from") && given("category"):
				return app.Usage(cmd, errors.New("--from and --category: give one of them; --uri names what files are below"))
			case given("uri") && given("category"):
				return app.Usage(cmd, errors.New("--uri and --category: give one of them"))
			}
			if from != "" {
				if len(args) > 1 {
					return app.Usage(cmd, errors.New("a text and --from: give one of them"))
				}
				return addResources(cmd.Context(), a, args[0], from, uri)
			}
			if len(args) < 2 {
				return app.Usage(cmd, errors.New("what to remember? give a text, or files with --from"))
			}
			text := args[1]
			if text == "-" {
				data, err := a.ReadInput("-", memory.MaxText)
				if err != nil {
					return err
				}
				text = string(data)
			}
			if strings.TrimSpace(text) == "" {
				return app.Usage(cmd, errors.New("the note is empty: say what to remember"))
			}
			if uri == "" {
				var err error
				if uri, err = notebook.NoteURI(notebook.User, category, text); err != nil {
					return app.Usage(cmd, fmt.Errorf("--category %q: %w", category, err))
				}
			}
			ctx := cmd.Context()
			return inMemory(ctx, a, args[0], func(_ *app.System, m memory.Store) error {
				if err := m.Write(ctx, uri, text, memory.Origin{}); err != nil {
					return err
				}
				if done, err := app.EmitOne(a, map[string]string{"memory": args[0], "uri": uri}); done {
					return err
				}
				a.Out.Println(uri)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&uri, "uri", "", "name of the note, such as memory://user/preferences/theme")
	cmd.Flags().StringVar(&category, "category", "notes", "part of the name that is made of the text")
	cmd.Flags().StringVar(&from, "from", "", "add this file, or the files of this directory (`PATH`)")
	return cmd
}

func memoryRead(a *app.App) *cobra.Command {
	level := ""
	cmd := &cobra.Command{
		Use:   "read NAME URI",
		Short: "Print the text of a note or a resource",
		Long: `Prints the text of a note, and of a name without a note all that is below it,
such as a resource. With --level it prints the abstract (the first paragraph),
the overview (headings, and how paragraphs begin) or the full text.`,
		Example: "  rath memory read team memory://user/preferences/theme\n  rath memory read team memory://resources/guide.md\n  rath memory read team memory://resources/guide.md --level overview",
		Args:    app.Exactly(2, "the name of a memory and a URI"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{memory.LevelAbstract, memory.LevelOverview, memory.LevelFull}, level) {
				return app.Usage(cmd, fmt.Errorf("--level %s: want %s, %s or %s", level, memory.LevelAbstract, memory.LevelOverview, memory.LevelFull))
			}
			ctx := cmd.Context()
			return inMemory(ctx, a, args[0], func(_ *app.System, m memory.Store) error {
				text, err := memory.ReadLevel(ctx, m, args[1], level)
				if errors.Is(err, memory.ErrNotFound) {
					return noNote(a, args)
				}
				if err != nil {
					return err
				}
				if done, err := app.EmitOne(a, written{URI: args[1], Text: text}); done {
					return err
				}
				a.Out.Println(term.Clean(strings.TrimSuffix(text, "\n")))
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&level, "level", memory.LevelFull, "`abstract`, overview or full")
	return cmd
}

func noNote(a *app.App, args []string) error {
	return app.Fail(app.ExitNotFound, "memory %s has no note %s; %q lists what it has", args[0], args[1], a.Hint("memory", "ls", args[0]))
}

func memoryForget(a *app.App) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "forget NAME URI",
		Short: "Remove a note, or all that is below a name",
		Long: `Removes a note. With --all it removes all notes at and below URI; memory:// is
the whole memory. What runs have recalled already stays in their records.`,
		Example: "  rath memory forget team memory://user/preferences/theme\n  rath memory forget team memory://session --all",
		Args:    app.Exactly(2, "the name of a memory and a URI"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return inMemory(ctx, a, args[0], func(_ *app.System, m memory.Store) error {
				uris, err := m.List(ctx, args[1])
				switch {
				case err != nil:
					return err
				case len(uris) == 0:
					return noNote(a, args)
				case !all && (len(uris) > 1 || !slices.Contains(uris, args[1])):
					return app.Fail(app.ExitUsage, "%s at and below %s: remove them with --all", view.Counted(int64(len(uris)), "note"), args[1])
				}
				if err := m.Delete(ctx, args[1]); err != nil {
					return err
				}
				if done, err := app.EmitOne(a, map[string]any{"memory": args[0], "uri": args[1], "forgotten": len(uris)}); done {
					return err
				}
				a.Remark("forgotten: %s", view.Counted(int64(len(uris)), "note"))
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove all notes at and below URI")
	return cmd
}

func memoryExport(a *app.App) *cobra.Command {
	under, to := "", ""
	cmd := &cobra.Command{
		Use:   "export NAME",
		Short: "Write the notes of a memory as lines of JSON",
		Long: `Writes the notes of a memory to standard output, sorted by their URIs, each as
JSON on a line of its own: uri, text and origin, which names the step or the
user that wrote it. With --to it writes their texts as files of a directory, as
OpenRath keeps them: memory://user/a/b is user/a/b.md.`,
		Example: "  rath memory export team > team.jsonl\n  rath memory export team --under memory://agent | jq -r .text",
		Args:    app.Exactly(1, "the name of a memory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return inMemory(ctx, a, args[0], func(s *app.System, _ memory.Store) error {
				if to != "" {
					n, err := exportTree(ctx, s, args[0], under, to)
					if err == nil {
						a.Remark("written: %s", view.Counted(int64(n), "note"))
					}
					return err
				}
				return s.Memory.Each(ctx, args[0], under, 0, func(uri, text string, from memory.Origin) error {
					return a.WriteLine(written{uri, text, from})
				})
			})
		},
	}
	cmd.Flags().StringVar(&under, "under", root, "only notes at and below this `URI`")
	cmd.Flags().StringVar(&to, "to", "", "write them as files of this `directory`, which has none of them yet")
	return cmd
}
