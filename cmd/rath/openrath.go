package main

import (
	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/session"
)

func (a *app) importCommand() *cobra.Command { return &cobra.Command{Use: "import"} }

func exportOpenRath(v session.Session) ([]byte, error) { return nil, nil }
