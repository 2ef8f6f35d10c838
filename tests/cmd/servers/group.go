package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/watermill-inbox/inbox/tests/servers"
)

// group is the servers of one run, in a temporary directory of their own.
type group struct {
	dir     string
	members []servers.Server
}

func newGroup(names []string) (*group, error) {
	dir, err := os.MkdirTemp("", "watermill-inbox-")
	if err != nil {
		return nil, err
	}
	g := &group{dir: dir}
	for _, name := range names {
		server, err := servers.New(name, filepath.Join(dir, name))
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		g.members = append(g.members, server)
	}
	return g, nil
}

// start starts all servers at once. The first that fails ends the start of
// the others.
func (g *group) start(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := g.each(func(s servers.Server) error {
		begin := time.Now()
		if err := s.Start(ctx); err != nil {
			if ctx.Err() == nil {
				cancel(err)
			}
			return err
		}
		say("%s: started in %.1fs, %s", s.Name(), time.Since(begin).Seconds(), s.Addr())
		return nil
	})
	if err != nil {
		return context.Cause(ctx)
	}
	return nil
}

// stop takes all servers down and removes their data.
func (g *group) stop() error {
	err := g.each(func(s servers.Server) error { return s.Stop(context.Background()) })
	return errors.Join(err, os.RemoveAll(g.dir))
}

func (g *group) environ() []string {
	var env []string
	for _, s := range g.members {
		env = append(env, servers.Variable(s.Name())+"="+s.Addr())
	}
	return env
}

func (g *group) each(do func(servers.Server) error) error {
	results := make([]error, len(g.members))
	var wg sync.WaitGroup
	for i, s := range g.members {
		wg.Go(func() { results[i] = do(s) })
	}
	wg.Wait()
	return errors.Join(results...)
}
