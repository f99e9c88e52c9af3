package forge

import (
	"errors"
	"fmt"
	"strings"

	"github.com/openrlc/rlc"
)

// MarkBytes is the room that a comment's mark takes.
const MarkBytes = 64

// Comments are a review's comments on one forge.
type Comments struct {
	// Each yields the number and the text of every comment until yield says no.
	Each   func(yield func(id int64, text string) bool) error
	Create func(text string) (id int64, err error)
	Change func(id int64, text string) error
}

// mark ends RLC's one comment. It holds the comment's own number: whoever quotes or
// copies the comment does not make another one that is taken for RLC's.
func mark(id int64) string { return fmt.Sprintf("\n\n<!-- rlc:comment %d -->", id) }

// Write changes RLC's one comment, or makes it.
func (c Comments) Write(text string) error {
	var own []int64
	if err := c.Each(func(id int64, has string) bool {
		if strings.HasSuffix(strings.TrimSpace(has), strings.TrimSpace(mark(id))) {
			own = append(own, id)
		}
		return true
	}); err != nil {
		return err
	}
	for _, id := range own {
		// What RLC may not change is not RLC's, whatever it says.
		if err := c.Change(id, text+mark(id)); !errors.Is(err, rlc.ErrRefused) && !errors.Is(err, rlc.ErrNotFound) {
			return err
		}
	}
	id, err := c.Create(text)
	if err != nil {
		return err
	}
	return c.Change(id, text+mark(id))
}
