package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/evidence/openrath"
	"github.com/rathcluster/rath/internal/evidence/signature"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Export is the command "export".
func Export(a *app.App) *cobra.Command {
	var form, out, key string
	var script bool
	cmd := &cobra.Command{
		Use:   "export NAME",
		Short: "Write the evidence of a run, a session for OpenRath, or a script",
		Long: `Writes to standard output, or to the file of --out:

  --dossier html|md|json   the evidence of a run; "verify" checks it offline
  --script                 the model's answers of a run as a txtar script, for
                           "run --script"
  neither                  a session as OpenRath's JSONL

A dossier has the signature of the node that stored the run's result, if the
node has a key; --sign adds yours. "verify --signers" checks both.

A script finds each answer by its place in the conversation and by the last
message. Prompts of agents are not part of a session: two agents with the same
words at the same place answer in turns.`,
		Example: `  rath export @last --dossier html --out run.html
  rath export @last --dossier json --sign ~/.ssh/evidence --out run.json
  rath export @last --script --out testdata/model.txtar
  rath export 7f3a > session.jsonl`,
		Args: app.Exactly(1, "one session or run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if script && form != "" {
				return app.Usage(cmd, fmt.Errorf("give --dossier or --script, not both"))
			}
			if form != "" {
				if err := app.OneOf("html", "md", "json")(form); err != nil {
					return app.Usage(cmd, fmt.Errorf("--dossier %w", err))
				}
			}
			if key != "" && form == "" {
				return app.Usage(cmd, errors.New("--sign signs the evidence of a run: it needs --dossier"))
			}
			var sign func(string) (string, error)
			if key != "" {
				k, err := signature.Load(key)
				if err != nil {
					return err
				}
				sign = k.Sign
			}
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error {
				data, err := exported(ctx, a, s, args[0], form, script, sign)
				if err != nil {
					return err
				}
				if out == "" || out == "-" {
					_, err := a.Out.Write(data)
					return err
				}
				return ReplaceFile(out, data)
			})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&form, "dossier", "", "html, md or json")
	fs.BoolVar(&script, "script", false, "the model's answers as a script")
	fs.StringVar(&key, "sign", "", "private key `file` of ssh-keygen to sign the evidence")
	fs.StringVar(&out, "out", "", "write to this file")
	return cmd
}

func exported(ctx context.Context, a *app.App, s *app.System, name, form string, script bool, sign func(string) (string, error)) ([]byte, error) {
	switch {
	case form != "":
		r, err := reference.Run(ctx, s, name)
		if err != nil {
			return nil, err
		}
		e, err := Collect(ctx, a, s, &r)
		if err == nil && sign != nil {
			err = e.Sign(sign)
		}
		if err != nil {
			return nil, err
		}
		return render(e, form)
	case script:
		r, err := reference.Run(ctx, s, name)
		if err != nil {
			return nil, err
		}
		return runScript(ctx, s, &r)
	}
	n, err := reference.Resolve(ctx, s, name)
	if err != nil {
		return nil, err
	}
	v, err := s.At(ctx, n.Ref(s.Tenant()))
	if err != nil {
		return nil, err
	}
	return exportOpenRath(v)
}

// Collect collects the evidence of a run. It states the facts that the commits lack.
func Collect(ctx context.Context, a *app.App, s *app.System, r *messages.RunInfo) (*dossier.Evidence, error) {
	home := session.Key{Tenant: s.Tenant(), ID: r.Session}
	return dossier.Collect(ctx, s.Log, s.Blobs(s.Tenant()), home, r.Run, &dossier.CollectOptions{
		Stated: []dossier.Fact{{Name: dossier.FactRelease, Value: node.Version()}},
		Signatures: func(ctx context.Context, id run.ID) ([]dossier.Signature, error) {
			res, err := s.Runs.Result(ctx, id)
			if err != nil || res.Signature == "" || id == r.Run && res.Session != r.Session { // of another run under the same id
				return nil, err
			}
			return []dossier.Signature{{Statement: res.Statement, Signature: res.Signature}}, nil
		},
	})
}

func render(e *dossier.Evidence, form string) ([]byte, error) {
	switch form {
	case "html":
		return dossier.HTML(e)
	case "md":
		return dossier.Markdown(e)
	}
	return e.Encode()
}

// WriteDossier writes the evidence of a run into a file, in the form of the name's
// extension.
func WriteDossier(ctx context.Context, a *app.App, s *app.System, id run.ID, name string) error {
	form, err := FormOf(name)
	if err != nil {
		return err
	}
	r, err := s.Runs.Get(ctx, id)
	if err != nil {
		return err
	}
	e, err := Collect(ctx, a, s, &r)
	if err != nil {
		return err
	}
	data, err := render(e, form)
	if err != nil {
		return err
	}
	return ReplaceFile(name, data)
}

// FormOf returns the form of a dossier by the extension of its file's name.
func FormOf(name string) (string, error) {
	form := strings.TrimPrefix(filepath.Ext(name), ".")
	if err := app.OneOf("html", "md", "json")(form); err != nil {
		return "", app.Fail(app.ExitUsage, "--out-dossier %s: end the name with .html, .md or .json", name)
	}
	return form, nil
}

// exportOpenRath returns a session as OpenRath reads it.
func exportOpenRath(v session.Session) ([]byte, error) {
	if source := v.Opening().Source; source != "" {
		return openrath.Restore(source, v)
	}
	var created, closed time.Time
	for _, c := range v.Chunks() {
		t := c.Origin().Time
		if created.IsZero() {
			created = t
		}
		closed = t
	}
	var b bytes.Buffer
	err := openrath.Export(v, created, closed).Write(&b)
	return b.Bytes(), err
}
