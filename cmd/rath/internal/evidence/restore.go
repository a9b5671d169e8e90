package evidence

import (
	"context"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/dossier"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/retention"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// restoreFile brings the sessions of an archive back.
func restoreFile(ctx context.Context, a *app.App, c *api.Conn, name string) []Imported {
	refused := func(err error) []Imported {
		return []Imported{{File: name, Kind: dossier.FormTree, Error: messages.Text(err)}}
	}
	doc, err := a.ReadInput(name, maxDossier)
	if err != nil {
		return refused(err)
	}
	tree, back, err := retention.Restore(ctx, c, doc, "import")
	if err != nil {
		return refused(err)
	}
	var all []Imported
	for i, r := range back {
		v := Imported{File: name, Session: r.Session, Kind: dossier.FormTree}
		for _, raw := range tree.Logs[i].Commits {
			commit, err := session.Decode([]byte(raw))
			if err != nil {
				return refused(err)
			}
			for _, ev := range commit.Events {
				switch ev.Kind {
				case session.KindChunk:
					v.Rows++
				case session.KindClosed:
					v.Closed = true
				}
			}
		}
		if r.There {
			v.Note = "was there already"
		}
		all = append(all, v)
	}
	return all
}
