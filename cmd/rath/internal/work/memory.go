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
		Long: `Lists the names of the memories, or the notes of a named one: all of them, or
those at and below URI, each with its first line.`,
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
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number of rows")
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
		a.Remark("there are more; name a URI above them, or list them with --limit %d", 10*limit)
	case len(all) == 0 && !done && large == nil:
		a.Remark("memory %s of tenant %s has no notes there", name, s.Tenant())
	}
	return large
}

func memoryFind(a *app.App) *cobra.Command {
	var q memory.Query
	cmd := &cobra.Command{
		Use:   "find NAME TEXT",
		Short: "Find the best matching notes of a memory",
		Long: `Finds the notes that match a text, best first, as agents do: by the words of
both, in any script. A note without a common word is not found, unless the
nodes' list of models has a model under "memory": then vectors count too. With
--scores openrath notes have the order and the scores of OpenRath's local
memory, including those without a common word.`,
		Example: `  rath memory find team "which theme?"
  rath memory find team "slugs" --under memory://agent --limit 3
  rath memory find team "dark theme" --scores openrath`,
		Args: app.Exactly(2, "the name of a memory and a text"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if q.Limit < 1 || q.Limit > memory.MaxLimit {
				return app.Usage(cmd, fmt.Errorf("--limit %d: want 1 to %d", q.Limit, memory.MaxLimit))
			}
			if strings.TrimSpace(args[1]) == "" {
				return app.Usage(cmd, errors.New("the text is empty: give a text to search"))
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
	cmd.Flags().IntVar(&q.Limit, "limit", memory.DefaultLimit, "maximum number of notes")
	cmd.Flags().StringVar(&q.Scores, "scores", "", "use and show the scores of `openrath`")
	return cmd
}

func memoryAdd(a *app.App) *cobra.Command {
	var uri, category, from string
	cmd := &cobra.Command{
		Use:   "add NAME [TEXT]",
		Short: "Write a note, or the text of files, and print the URI",
		Long: `Writes a note to a memory and prints its URI; TEXT - reads standard input.
Agents with this memory recall it from then on, on all nodes, quoted and with
its author. Without --uri the name comes from the text, so the same text again
is the same note. With --uri an existing note is replaced.

With --from it adds a file, or the files of a directory, as resources: the text
of each, in passages, below memory://resources/ and its path. Adding it again
replaces changed passages. It skips, by name, empty files, files without text,
names that a URI cannot have, and links, except PATH itself. It ignores names
beginning with a dot. Limits: 1,000 files, 4 MiB each and 16 MiB in all; more is
rejected before the first write.`,
		Example: `  rath memory add team "Slugs skip empty words." --category style
  rath memory add team - --uri memory://resources/guide < guide.md
  rath memory add team --from docs`,
		Args: app.Between(1, 2, "the name of a memory and a text"),
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed
			switch {
			case given("from") && given("category"):
				return app.Usage(cmd, errors.New("--from and --category: give one of them; --uri names the URI above the files"))
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
				return app.Usage(cmd, errors.New("the note is missing: give a text, or files with --from"))
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
				return app.Usage(cmd, errors.New("the note is empty: give its text"))
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
	cmd.Flags().StringVar(&category, "category", "notes", "part of the generated name")
	cmd.Flags().StringVar(&from, "from", "", "add this file, or the files of this directory (`PATH`)")
	return cmd
}

func memoryRead(a *app.App) *cobra.Command {
	level := ""
	cmd := &cobra.Command{
		Use:   "read NAME URI",
		Short: "Print the text of a note or a resource",
		Long: `Prints the text of a note; for a name without a note it prints everything below,
such as a resource. With --level it prints the abstract (the first paragraph),
the overview (headings and first sentences) or the full text.`,
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
	return app.Fail(app.ExitNotFound, "memory %s has no note %s; %q lists its notes", args[0], args[1], a.Hint("memory", "ls", args[0]))
}

func memoryForget(a *app.App) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "forget NAME URI",
		Short: "Remove a note, or all notes below a name",
		Long: `Removes a note. With --all it removes all notes at and below URI; memory:// is
the whole memory. Notes already recalled stay in the records of their runs.`,
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
		Long: `Writes the notes of a memory to standard output, sorted by URI, each as a line
of JSON: uri, text and origin, which is the step or the user that wrote it. With
--to it writes their texts to files of a directory in OpenRath's layout:
memory://user/a/b is user/a/b.md.`,
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
	cmd.Flags().StringVar(&to, "to", "", "write them to new files of this `directory`")
	return cmd
}
