package project

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestRunsThatWait lists runs that wait, page by page, with a few requests for each page:
// also the older pages do not read the tree of each run.
func TestRunsThatWait(t *testing.T) { testRunsThatWait(t, 0) }

// TestRunsThatWaited lists runs that a node claimed later: the older pages read the end of
// each with one request, in which a server passes no messages of other trees.
func TestRunsThatWaited(t *testing.T) { testRunsThatWait(t, 1) }

func testRunsThatWait(t *testing.T, rest int) {
	const runs, page, most = 1500, 100, 6 // requests for a page
	layer.InBubble(t, func(t *testing.T, c *Projections, w *natstest.Wire) {
		p := newRelay(t, c, c.logs.HomeOf(session.DefaultTenant, "r"))
		var all [][]messages.Record
		for i := range runs {
			r := messages.Record{
				Schema: lineage.Schema, Tenant: session.DefaultTenant, Run: run.ID(fmt.Sprint("r", i)), Workflow: "agent",
				Seq: uint64(i + 1), Commit: 1, Epoch: 1, Hash: "h", Time: int64(i + 1),
			}
			r.Session = c.logs.HomeOf(r.Tenant, r.Run)
			r.Root = r.Session
			opened, submitted := r, r
			opened.Kind, opened.K, opened.Via = messages.KindOpened, 1, session.OpenLeaf
			submitted.Kind, submitted.K, submitted.State = messages.KindSubmitted, 2, string(run.Queued)
			all = append(all, []messages.Record{opened, submitted})
		}
		want := run.Queued
		if rest > 0 {
			want = run.Succeeded
		}
		for i := range rest * runs {
			r := all[i][0]
			r.Seq, r.Commit, r.Time, r.Via, r.Node, r.Attempt = uint64(runs+i+1), 2, int64(runs+i+1), "", "n", 1
			claimed, ended := r, r
			claimed.Kind, claimed.K = messages.KindClaimed, 1
			ended.Kind, ended.K, ended.State = messages.KindEnded, 2, string(want)
			all = append(all, []messages.Record{claimed, ended})
		}
		must.Do(t, p.publish(t.Context(), all))
		var asked, passing atomic.Int64
		w.Set(nil, func(b []byte) bool {
			passing.Add(int64(bytes.Count(b, []byte(`.\u003e"`))))
			for _, api := range []string{"DIRECT.GET.", "STREAM.MSG.GET."} {
				asked.Add(int64(bytes.Count(b, []byte("PUB $JS.API."+api+streams.StreamLineage))))
			}
			return true
		})
		h := &history{c: c, tenant: session.DefaultTenant, first: 1, last: uint64(len(all))}
		listed, pages := 0, 0
		for before := uint64(0); ; {
			rows, next := must.Pair(h.Runs(t.Context(), before, page, Choice{Now: time.UnixMilli(2*runs + 1)}))(t)
			for _, r := range rows {
				if r.State != want {
					t.Fatalf("run %s is %s, want %s", r.ID, r.State, want)
				}
			}
			listed, pages = listed+len(rows), pages+1
			if before = next; next == 0 {
				break
			}
		}
		pagesAsked, pagesPassing := asked.Swap(0), passing.Swap(0)
		root := all[0][0].Root
		g, err := h.Tree(t.Context(), root)
		w.Set(nil, nil)
		if listed != runs {
			t.Errorf("%d runs are listed, want %d", listed, runs)
		}
		if n := pagesAsked; n > int64(pages*most+rest*runs) {
			t.Errorf("%d pages took %d requests, want at most %d each, and %d for each run", pages, n, most, rest)
		}
		if n := pagesPassing; n > int64(pages*most) {
			t.Errorf("%d pages took %d requests that pass the messages of other trees, want at most %d each", pages, n, most)
		}
		must.Do(t, err)
		if r, err := g.Run(session.DefaultTenant, all[0][0].Run); err != nil || r.State != want {
			t.Errorf("the tree tells of run %s: %s, %v; want %s", r.ID, r.State, err, want)
		}
		// Where the records of a tree are is asked by its wildcard, which a server answers
		// from its index.
		if n, pass := asked.Load(), passing.Load(); n > 2 || pass > 1 {
			t.Errorf("a tree took %d requests, %d of them by a wildcard, want at most 2 and 1", n, pass)
		}
	})
}

// TestListsOfTenants lists the runs of a tenant that has nearly all records, which passes
// the subjects of no tree, and of a tenant that has few, which reads few of the others'.
func TestListsOfTenants(t *testing.T) {
	const runs, one = 3000, 30
	layer.InBubble(t, func(t *testing.T, c *Projections, w *natstest.Wire) {
		p := newRelay(t, c, c.logs.HomeOf(session.DefaultTenant, "r"))
		var all [][]messages.Record
		for i := range runs {
			r := messages.Record{
				Schema: lineage.Schema, Tenant: "large", Run: run.ID(fmt.Sprint("r", i)), Workflow: "agent",
				Seq: uint64(i + 1), Commit: 1, Epoch: 1, Hash: "h", Time: int64(i + 1),
			}
			if i%one == 0 {
				r.Tenant = "small"
			}
			r.Session = c.logs.HomeOf(r.Tenant, r.Run)
			r.Root = r.Session
			opened, ended := r, r
			opened.Kind, opened.K, opened.Via = messages.KindOpened, 1, session.OpenLeaf
			r.Kind, r.K, r.State = messages.KindSubmitted, 2, string(run.Queued)
			ended.Kind, ended.K, ended.State, ended.Attempt = messages.KindEnded, 3, string(run.Succeeded), 1
			all = append(all, []messages.Record{opened, r, ended})
		}
		must.Do(t, p.publish(t.Context(), all))
		var filtered, whole atomic.Int64
		w.Set(nil, func(b []byte) bool {
			filtered.Add(int64(bytes.Count(b, []byte(`.\u003e"`))))
			whole.Add(int64(bytes.Count(b, []byte(`"\u003e"`))))
			return true
		})
		for _, tenant := range []session.Tenant{"large", "small"} {
			filtered.Store(0)
			whole.Store(0)
			h := &history{c: c, tenant: tenant, first: 1, last: runs}
			listed, pages := 0, int64(0)
			for before := uint64(0); ; {
				rows, next := must.Pair(h.Runs(t.Context(), before, runs, Choice{Now: time.UnixMilli(runs + 1), States: []run.State{run.Succeeded}}))(t)
				listed, pages = listed+len(rows), pages+1
				if before = next; next == 0 {
					break
				}
			}
			want := runs / one
			if tenant == "large" {
				want = runs - want
			}
			if listed != want {
				t.Errorf("%d runs of tenant %s are listed, want %d", listed, tenant, want)
			}
			n, of := filtered.Load(), whole.Load()
			if tenant == "large" && n > 0 {
				t.Errorf("%d requests passed the subjects of a tenant that has nearly all", n)
			}
			if tenant == "small" && (of > pages || n == 0) {
				t.Errorf("%d requests read what others have, and %d what the tenant has, in %d pages", of, n, pages)
			}
		}
		w.Set(nil, nil)
	})
}

// TestListBelowManyArchived lists runs below the records of a prune of thousands of trees,
// among which no run was submitted. An answer ends there as well when it has read enough.
func TestListBelowManyArchived(t *testing.T) {
	const archived, most = 3 * scanMost, scanMost/window + 4
	layer.InBubble(t, func(t *testing.T, c *Projections, w *natstest.Wire) {
		p := newRelay(t, c, c.logs.HomeOf(session.DefaultTenant, "r"))
		r := messages.Record{
			Schema: lineage.Schema, Tenant: session.DefaultTenant, Run: "r", Workflow: "agent",
			Seq: 1, Commit: 1, Epoch: 1, Hash: "h", Time: 1, K: 1, Kind: messages.KindSubmitted, State: string(run.Queued),
		}
		r.Session = c.logs.HomeOf(r.Tenant, r.Run)
		r.Root = r.Session
		all := [][]messages.Record{{r}}
		r.Run, r.Workflow, r.State, r.Kind = "", "", "", messages.KindArchived
		for i := range archived {
			r.Session = c.logs.HomeOf(r.Tenant, run.ID(fmt.Sprint("a", i)))
			r.Root, r.Seq = r.Session, uint64(i+2) //nolint:gosec // small
			all = append(all, []messages.Record{r})
		}
		must.Do(t, p.publish(t.Context(), all))
		var asked atomic.Int64
		w.Set(nil, func(b []byte) bool {
			asked.Add(int64(bytes.Count(b, []byte("PUB $JS.API.DIRECT.GET."+streams.StreamLineage))))
			return true
		})
		h := &history{c: c, tenant: session.DefaultTenant, first: 1, last: uint64(len(all))}
		listed := 0
		for before := uint64(0); ; {
			asked.Store(0)
			rows, next := must.Pair(h.Runs(t.Context(), before, 1, Choice{Now: time.UnixMilli(2)}))(t)
			if n := asked.Load(); n > most {
				t.Fatalf("an answer took %d requests, want at most %d", n, most)
			}
			listed += len(rows)
			if before = next; next == 0 {
				break
			}
		}
		w.Set(nil, nil)
		if listed != 1 {
			t.Errorf("%d runs are listed, want 1", listed)
		}
	})
}

// TestListOfWideFanOuts lists the runs of fan-outs whose branches ended long after they
// were submitted: the reads of a list grow with the branches, and not with their square.
// All of them are runs of one tree, which a page reads once.
func TestListOfWideFanOuts(t *testing.T) {
	for _, branches := range []int{256, 1024} {
		t.Run(fmt.Sprint(branches), func(t *testing.T) {
			layer.InBubble(t, func(t *testing.T, c *Projections, w *natstest.Wire) {
				all := fanOut(c, branches)
				must.Do(t, newRelay(t, c, all[0][0].Session).publish(t.Context(), all))
				var asked atomic.Int64
				w.Set(nil, func(b []byte) bool {
					for _, api := range []string{"DIRECT.GET.", "STREAM.MSG.GET."} {
						asked.Add(int64(bytes.Count(b, []byte("PUB $JS.API."+api+streams.StreamLineage))))
					}
					return true
				})
				h := &history{c: c, tenant: session.DefaultTenant, first: 1, last: uint64(len(all))}
				where := must.Get(lineage.ParseSelector("branch=no"))(t)
				for name, o := range map[string]Choice{"all": {}, "no branches": {Where: where}} {
					o.Now = time.UnixMilli(int64(10 * branches))
					listed, pages := 0, 0
					asked.Store(0)
					for before := uint64(0); ; {
						rows, next := must.Pair(h.Runs(t.Context(), before, 1000, o))(t)
						for _, r := range rows {
							if r.State != run.Succeeded {
								t.Fatalf("run %s is %s", r.ID, r.State)
							}
						}
						listed, pages = listed+len(rows), pages+1
						if before = next; next == 0 {
							break
						}
					}
					want := branches + 1
					if o.Where != nil {
						want = 1
					}
					if listed != want {
						t.Errorf("%s: %d runs are listed, want %d", name, listed, want)
					}
					// Each page reads the tree at most once, and its own stretch.
					bulk := int64(len(all)/conn.PageMessages + 1)
					if n, most := asked.Load(), int64(pages)*(2*bulk+aboveOne+8); n > most {
						t.Errorf("%s: %d pages took %d requests, want at most %d", name, pages, n, most)
					}
					t.Logf("%s: %d messages, %d pages, %d requests", name, len(all), pages, asked.Load())
				}
				w.Set(nil, nil)
			})
		})
	}
}

// fanOut returns the records of a run and of its branches, commit by commit: all branches
// are submitted before the first one ends.
func fanOut(c *Projections, branches int) (all [][]messages.Record) {
	base := messages.Record{Schema: lineage.Schema, Tenant: session.DefaultTenant, Run: "r", Workflow: "wide", Epoch: 1, Hash: "h"}
	base.Session = c.logs.HomeOf(base.Tenant, base.Run)
	base.Root = base.Session
	_, partition, _ := base.Session.Locate()
	commits := map[session.ID]uint64{}
	commit := func(records ...messages.Record) {
		at := records[0].Session
		commits[at]++
		for i := range records {
			r := &records[i]
			r.Partition, r.Seq, r.Commit, r.K, r.Time = partition, uint64(len(all)+1), commits[at], i+1, int64(len(all)+1)
		}
		all = append(all, records)
	}
	of := func(id session.ID, run run.ID, kind messages.Kind) messages.Record {
		r := base
		r.Session, r.Run, r.Kind, r.Attempt, r.Node = id, run, kind, 1, "n"
		return r
	}
	opened, submitted := of(base.Session, "r", messages.KindOpened), of(base.Session, "r", messages.KindSubmitted)
	opened.Via, submitted.State = session.OpenLeaf, string(run.Queued)
	commit(opened, submitted, of(base.Session, "r", messages.KindClaimed))
	fan := of(base.Session, "r", messages.KindFannedOut)
	fan.Step = "0"
	var ids []session.ID
	for i := range branches {
		id := c.logs.Minter().Child(base.Tenant, "r", fmt.Sprint("0.b", i))
		ids = append(ids, id)
		fan.Branches = append(fan.Branches, messages.Ref{Session: id})
	}
	waiting := of(base.Session, "r", messages.KindWaiting)
	waiting.Waits = []messages.Wait{{Kind: run.WaitBranches, Step: "0", Branches: ids}}
	commit(fan, waiting)
	for i, id := range ids {
		o, s := of(id, run.ID(id), messages.KindForked), of(id, run.ID(id), messages.KindSubmitted)
		o.Parents = []messages.Ref{{Session: base.Session, Commit: 2, Hash: "h"}}
		s.State, s.Name = string(run.Queued), fmt.Sprint("b", i)
		s.BranchOf = &messages.Place{Run: "r", Session: base.Session, Step: "0"}
		commit(o, s, of(id, run.ID(id), messages.KindClaimed))
	}
	for _, id := range ids {
		end := of(id, run.ID(id), messages.KindEnded)
		end.State = string(run.Succeeded)
		commit(end)
		report := of(base.Session, "r", messages.KindReported)
		report.Branches = []messages.Ref{{Session: id}}
		commit(report)
	}
	end := of(base.Session, "r", messages.KindEnded)
	end.State = string(run.Succeeded)
	commit(of(base.Session, "r", messages.KindClaimed), end)
	return all
}
