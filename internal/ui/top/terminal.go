package top

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"
)

// A Terminal is the input and output of a user.
type Terminal struct {
	In  io.Reader
	Out io.Writer
	// Name is that of its kind, which TERM holds.
	Name string
}

// Draws reports whether keys can be read and a screen can be drawn there.
func (t Terminal) Draws() bool {
	return isTerminal(t.In) && isTerminal(t.Out) && t.Name != "dumb" && t.Name != ""
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Show draws until the user quits or ctx ends, and leaves the terminal as it was, whatever happens.
func (m *Model) Show(ctx context.Context, t Terminal) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP) // other signals end ctx already
	defer stop()
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(t.In), tea.WithOutput(t.Out), tea.WithoutSignalHandler()).Run()
	if ctx.Err() != nil && !errors.Is(err, tea.ErrProgramPanic) {
		return nil
	}
	return err
}
