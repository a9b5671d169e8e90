package evidence

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/messages"
)

// auditFlags are the flags of audit.
type auditFlags struct {
	dump, secret           string
	open                   bool
	limit                  int
	tools, models, clients []string
}

// Audit is the command "audit".
func Audit(a *app.App) *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use:   "audit [DUMP]",
		Short: "Check every promise from the stored bytes",
		Long: `Reads all streams, or a dump of them, and checks the promises of the system:
whole chains, one writer, one end per run, no repeated effect without a
decision, waits that end once, branches with outcomes, budgets, tenants,
lineage, results. The auditor shares no code with the system: it uses only the
format and the schemas.

Witness files add outside evidence. --tools has the executions seen by tools,
one JSON line {"call","attempt","tool","time"} each; --models the requests seen
by the model server {"run","step","attempt","try","time"}; --clients the replies
seen by clients {"op":"submit","run"}, and "commit", "result" and "control".
--secret is a file of credentials, one per line, that must not be stored
anywhere.

A system at rest has an end for each branch, a result for each run and a record
for each event. For a running system use --open: it ignores missing ones that
may still follow. Reading a server needs the credentials of an operator.

Exit code 1: a promise was broken. Each line names it, with the session, the
commit, the expected and the actual content. Exit code 6: no broken promise, but
an incomplete check. Streams are missing, and named, or a later release of rath
wrote unknown fields: use this release.`,
		Example: `  rath cluster audit
  rath cluster audit --server nats://nats:4222 --creds op.creds --dump all.jsonl
  rath cluster audit all.jsonl --tools tools.jsonl --secret keys.txt`,
		Args: app.AtMost(1, "one dump"),
		RunE: func(cmd *cobra.Command, args []string) error { return auditStreams(cmd.Context(), a, args, &f) },
	}
	cmd.Flags().StringVar(&f.dump, "dump", "", "file for a dump of the streams")
	cmd.Flags().StringArrayVar(&f.tools, "tools", nil, "witness file of tools; can be given again")
	cmd.Flags().StringArrayVar(&f.models, "models", nil, "request log of the model server; can be given again")
	cmd.Flags().StringArrayVar(&f.clients, "clients", nil, "log of a client's replies; can be given again")
	cmd.Flags().StringVar(&f.secret, "secret", "", "file with credentials, one per line")
	cmd.Flags().BoolVar(&f.open, "open", false, "the system is running")
	cmd.Flags().IntVar(&f.limit, "limit", audit.DefaultLimit, "maximum number of printed violations per promise")
	return cmd
}

// schemaFiles are the schemas that are embedded in this program.
type schemaFiles struct{}

func (schemaFiles) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
}

func (schemaFiles) ReadFile(name string) ([]byte, error) {
	return messages.SchemaOf(strings.TrimSuffix(name, ".json"))
}

func auditStreams(ctx context.Context, a *app.App, args []string, f *auditFlags) (err error) {
	schemas, err := audit.ReadSchemas(schemaFiles{})
	if err != nil {
		return err
	}
	o := &audit.Options{Schemas: schemas, Edition: journal.Edition, Open: f.open, Limit: f.limit}
	if a.Config.Tenant.Given() {
		o.Tenant = a.Config.Tenant.Value
	}
	var files []io.Closer
	defer func() {
		for _, c := range files {
			err = errors.Join(err, c.Close())
		}
	}()
	for _, w := range []struct {
		names []string
		into  *[]io.Reader
	}{{f.tools, &o.Tools}, {f.models, &o.Models}, {f.clients, &o.Clients}} {
		for _, name := range w.names {
			file, err := os.Open(name)
			if err != nil {
				return err
			}
			files = append(files, file)
			*w.into = append(*w.into, file)
		}
	}
	if f.secret != "" {
		if o.Secrets, err = secrets(a, f.secret); err != nil {
			return err
		}
	}
	source, missing, close, err := stored(ctx, a, args)
	if err != nil {
		return err
	}
	files = append(files, closer(close))
	if f.dump != "" {
		if len(args) == 1 && sameFile(args[0], f.dump) {
			return app.Fail(app.ExitUsage, "--dump %s: this is the audited file, and writing would empty it; name another file", f.dump)
		}
		file, err := os.OpenFile(f.dump, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		files = append(files, file)
		source = dumping(source, audit.NewWriter(file))
	}
	report, err := audit.Run(ctx, source, o)
	if err != nil {
		return err
	}
	for i, name := range *missing {
		if !slices.Contains(report.Missing, name) { // report.Missing has only event streams, which come first
			report.Missing = slices.Insert(report.Missing, i, name)
		}
	}
	return audited(a, report)
}

// sameFile reports whether two names denote the same existing file.
func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

type closer func() error

func (c closer) Close() error { return c() }

// secrets reads the lines of a file.
func secrets(a *app.App, name string) ([]string, error) {
	data, err := a.ReadInput(name, 1<<20)
	if err != nil {
		return nil, err
	}
	var all []string
	for s := bufio.NewScanner(strings.NewReader(string(data))); s.Scan(); {
		if line := strings.TrimSpace(s.Text()); line != "" {
			all = append(all, line)
		}
	}
	return all, nil
}

// stored returns the messages of a dump, or of the streams. missing holds the missing
// streams once all messages have been read.
func stored(ctx context.Context, a *app.App, args []string) (messages iter.Seq2[audit.Message, error], missing *[]string, close func() error, err error) {
	missing = new([]string)
	if len(args) == 1 {
		if args[0] == "-" {
			return audit.ReadDump(a.In), missing, func() error { return nil }, nil
		}
		file, err := os.Open(args[0])
		if err != nil {
			return nil, nil, nil, err
		}
		return audit.ReadDump(file), missing, file.Close, nil
	}
	conn, err := a.OpenStreams(ctx, app.ToRead, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	return func(yield func(audit.Message, error) bool) {
		err := conn.Conn.Logs.Dump(ctx, func(m eventlog.Stored) error {
			if !yield(audit.Message(m), nil) {
				return errStopped
			}
			return nil
		})
		if m, ok := errors.AsType[*eventlog.MissingError](err); ok {
			*missing = m.Streams
			return
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(audit.Message{}, err)
		}
	}, missing, conn.Close, nil
}

var errStopped = errors.New("nothing reads on")

// dumping writes messages as they are read.
func dumping(source iter.Seq2[audit.Message, error], to *audit.Writer) iter.Seq2[audit.Message, error] {
	return func(yield func(audit.Message, error) bool) {
		for m, err := range source {
			if err == nil {
				err = to.Write(m)
			}
			if !yield(m, err) || err != nil {
				return
			}
		}
		if err := to.Flush(); err != nil {
			yield(audit.Message{}, err)
		}
	}
}
