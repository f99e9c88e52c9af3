package config

import "fmt"

// headerText refuses what is no header's name; "" names none.
func headerText(name string) error {
	if name != "" && !headerName.MatchString(name) {
		return fmt.Errorf("%q is no header's name", name)
	}
	return nil
}
