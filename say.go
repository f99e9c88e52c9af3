package rlc

import "regexp"

// values are the names of the values that callers branch on, where they stand
// before a text of their own.
var values = regexp.MustCompile(`(^|: )(?:(?:` + ErrNotFound.Error() + `|` + ErrConflict.Error() + `|` + ErrInvalid.Error() + `|` + ErrRefused.Error() + `): )+`)

// Say is what err says to people: its text without the names of the values that
// callers branch on, which wrapping repeats. Their meaning is in the status, the
// exit code or the title beside it.
func Say(err error) string { return values.ReplaceAllString(err.Error(), "$1") }
