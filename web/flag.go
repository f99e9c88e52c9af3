package web

// flag is a query parameter that is true or false; false where it is not given.
// Anything else is refused: an act must not come of a preview that was misspelt.
func (v *visit) flag(name string) (bool, error) {
	switch given := v.r.URL.Query()[name]; {
	case len(given) == 0:
		return false, nil
	case len(given) == 1 && given[0] == "true":
		return true, nil
	case len(given) == 1 && given[0] == "false":
		return false, nil
	}
	return false, invalid("%s must be true or false, and given once", name)
}
